"""Who keeps epochs and files alive.

Reading order

    pins          pins, written first and proved afterwards
    subscribers   who reads a stream's change log, and how far each is
    upstream_log  the committed epochs of a stream, for one that follows it
    ancestors     the files of other streams that a fork reads
"""
