"""Streams that are read by streams.

Reading order

    upstream_stream  an upstream as a `Stream` or as its change log
    upstream_source  the source that Spark reads it through
    upstreams        what the driver does before each query: subscribe, pin, look for trouble
    upstream_damage  what is said where an upstream's object is damaged
"""
