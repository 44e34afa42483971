"""The running aggregate: one row for each key, updated as rows arrive.

Reading order

    aggregate       the operator
    distinct_table  the different values of a column, as rows of state
"""
