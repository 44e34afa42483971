"""What can be said of a stream without reading its rows.

Reading order

    epoch_info       of an epoch
    pin_info         of a pin
    subscriber_info  of a stream that reads this one
    writer_info      of the writer, by its lease
"""
