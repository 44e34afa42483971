"""Sorted runs: what they are, how keys are found in them, when and how they become fewer. Pure: no I/O, no clock.

Reading order. Begin with `table`, `run`, `view` and `lookup`; the rest serves them.

What there is
    table         the verbs of state tables, as operators see them
    run           rows sorted by the hash of their key; it never changes
    view          a run as one manifest shows it: less than all of it
    words         what an epoch says of keys: what they are now, and what they were
    images        what they were, as a column of the new run, which so is the change log too

Finding keys
    lookup        one row for each key, newest run first
    key_hash      the hash of a key, as Spark computes it
    multimap      all rows under the first columns of a key
    search        the search in one layer of runs that both do
    directory     where in a run a hash lies
    bloom         whether a run may have it at all

Making one of many
    key_order     brings the rows of each key together
    merge         several runs into one: the newest word of each key
    pieces        what is larger than memory, a part at a time

Choosing what to merge
    compaction    the choice; its docstring says what it goes by
    merges        what may be chosen
    levels        upper runs, and the bottom beneath them
    depth         how many upper runs there are
    slices        where the next slice begins and ends
    run_lists     the lists of runs after something was written
    resharding    the same for another number of shards

Bytes
    run_file      a run's file, made and read
    run_tail      its end: descriptor and checksums
    blocks        what is checked, and fetched, as one
    places        which of the bytes some rows lie in
    widths        integers as narrow as they may be
    columns       what is done to Arrow columns everywhere
    value_hashes  hashes of values, the same on every machine
"""
