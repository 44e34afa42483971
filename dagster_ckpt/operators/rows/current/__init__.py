"""The current rows of a table that changes, as a state table.

Reading order

    keyed_rows    one row of each key
    unique_rows   one row of each key that the user has declared, which is checked
    counted_rows  rows without a unique key, each with a count
"""
