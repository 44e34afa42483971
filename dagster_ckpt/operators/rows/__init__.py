"""Operators that keep whole rows.

Reading order

    append       every input row once
    deduplicate  the first row of each key, or the newest
    first_rows   the first row of each key, for keys that expire
    kept_rows    one row of each key, which a better one replaces
    row_choice   which of several rows is kept
    changes_from the table that a source's inserts, updates and deletes make
    materializer the table that changes make: a copy of another, or of what a last step emits

Rooms
    current/     the current rows of a table, by key or counted
    top/         the best rows of each key
    over/        rows with what is computed from the rows beside them
"""
