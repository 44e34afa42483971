"""Facts about a stream that need none of its rows.

Reading order

    epoch_info       an epoch
    pin_info         a pin
    subscriber_info  a stream that reads this one
    writer_info      the writer, by its lease
"""
