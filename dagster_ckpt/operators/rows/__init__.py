"""Operators that keep whole rows.

Reading order

    append       every input row once
    deduplicate  the first row of each key, or the newest
    first_rows   the first row of each key, for keys that expire
    row_choice   which of several rows is kept
    changes_from the table that a source's inserts, updates and deletes make
    materializer the table that changes make: a copy of another, or of what a last step emits
    keyed_rows   the current rows of a table by key
    top          the best rows of each key
    row_places   the best rows by ROW_NUMBER: exactly so many
    row_ranks    the best rows by RANK and DENSE_RANK: rows that tie have one rank

Rooms
    over/        rows with what is computed from the rows beside them
"""
