"""Aggregates of groups of rows, and the running aggregate: one row for each key, updated as rows arrive.

Reading order

    aggregation       an aggregate of a column as a value
    spec              a function as one record
    registry          all functions by name
    aggregate         the operator
    aggregate_checks  what an aggregate may be
    grouped_state     the accumulators of each key, window or session, as a table
    since             an aggregate that begins later than its stream
    side_tables       tables of state beside the row of a group
    distinct_table    the distinct values of a column, as rows of state; with how many rows have them, if some go
    bag_table         all values of a key, for aggregates that need them
    best_values       the values of a column in their order, where rows are retracted

Rooms
    functions/        the functions of `agg`, with their records
    bags/             accumulators of all values of a group, or all distinct ones
    kinds/            accumulators: what is kept in the row of a group
"""
