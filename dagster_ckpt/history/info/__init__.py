"""Facts about a stream that need none of its rows.

Reading order

    epoch_info       an epoch
    pin_info         a pin
    subscriber_info  a stream that reads this one
    upstream_info    a stream that this one reads
    writer_info      the writer, by its lease
"""
