"""The rules of exactly-once, as pure values and functions: no I/O, no clock, no Spark, no Dagster.

Reading order. Begin with `manifest/manifest`: the one object whose creation commits an epoch.

An epoch
    manifest/       the manifest: its values, its bytes, and the objects that it names
    transitions/    how one manifest becomes the next, and which may follow which
    coordinator/    when an epoch begins, which shards have acknowledged it, when it commits or fails
    ack             what a task reports about one shard

A stream's epochs
    epochs/         which epochs exist, are kept, belong together, and are read by other streams

Who writes
    lease           the writer's heartbeat, and what a reader may conclude from it
    drain_request   a request that the writer ends at its next epoch

Names and bytes
    redaction       addresses, paths and messages without what may be a secret
    object_names    the one place that spells and parses the name of an object
    json_codec      codecs between frozen values and JSON
    change_columns  the columns that the change log adds to the table's
"""
