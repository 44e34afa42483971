"""The running aggregate: one row for each key, updated as rows arrive.

Reading order

    aggregate       the operator
    distinct_table  the distinct values of a column, as rows of state
"""
