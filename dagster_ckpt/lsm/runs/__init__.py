"""Sorted runs of rows: immutable, ordered by the hash of the key, each key once.

Reading order

    run             rows sorted by the hash of their key
    view            the part of a run that one manifest shows
    deltas          what an epoch changes of keys: their rows now, and those before
    key_order       brings the rows of each key together
    hash_pieces     cuts a table larger than memory into pieces of the hash range
    hash_index      where in a run a hash is, and whether the run may have it at all
"""
