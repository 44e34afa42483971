"""Stores over filesystems of fsspec: what each protocol creates an object once with.

Reading order

    calls     what a store asks of a server, and what the reply may be
    store     the object store over such calls
    places    buckets, containers and servers, and the options of their filesystems, checked
    opening   from a place and options to a store, the library loaded late

Protocols
    s3        S3 and servers that speak its protocol: a condition, If-None-Match
    gs        Google Cloud Storage: the condition of a generation
    azure     Azure Blob Storage: the condition of an entity tag
    webhdfs   HDFS: a rename that refuses to overwrite
"""
