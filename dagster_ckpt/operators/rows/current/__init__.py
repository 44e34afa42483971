"""The current rows of a table that changes, as a state table.

Reading order

    keyed_rows    one row of each key
    counted_rows  rows without a unique key, each with a count
"""
