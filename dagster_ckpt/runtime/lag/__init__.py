"""How far a stream is behind its sources, now.

Reading order

    lag            the value, and its arithmetic
    offset_lag     sources that report offsets: Kafka, and any other of Spark's
    waiting_files  files that are not read yet
    upstream_lag   epochs of an upstream that are not consumed yet
    source_lags    all sources of a running query
    lag_gauge      measures at intervals, in a background thread
"""
