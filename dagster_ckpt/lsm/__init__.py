"""Sorted runs: what they are, how keys are found in them, when and how they are merged. Pure: no I/O, no clock.

Reading order. Begin with `table`, `runs/run`, `runs/view` and `lookup`; the rest serves them.

    table           the verbs of state tables, as operators see them
    runs/           sorted runs of rows, and what an epoch writes into a new one
    lookup          rows of many keys, found in several runs at once
    layer_search    the search in one layer of runs
    compaction/     which runs to merge, and merging them
    file/           the bytes of a run's file

Used everywhere
    columns         operations on Arrow columns
    stored_columns  integers as narrow as their values allow, and columns that a file lacks
    key_hash        the hash of a key, as Spark computes it
    value_hashes    hashes of values, the same on every machine
"""
