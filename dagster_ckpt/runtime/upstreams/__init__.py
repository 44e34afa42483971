"""Streams that read streams.

Reading order

    upstream_stream  an upstream as a `Stream` or as its change log
    downstream       the stream that reads it, and the Spark that this needs
    upstream_rows    the rows of an upstream between two positions
    upstream_source  the source that Spark reads them through
    log_scan         the same rows, read by Arrow in place of Spark
    upstreams        the driver before each query: subscribe, pin a snapshot, check
    upstream_damage  which object of an upstream is damaged, and what helps
"""
