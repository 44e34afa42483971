"""The running aggregate: one row for each key, updated as rows arrive.

Reading order

    aggregate       the operator
    side_tables     tables of state beside the row of a group
    counted_values  the distinct values of a column and how many rows have them, where rows are retracted
    distinct_table  the distinct values of a column, as rows of state
    bag_table       all values of a key, for aggregates that need them
    best_values     the values of a column in their order, where rows are retracted
"""
