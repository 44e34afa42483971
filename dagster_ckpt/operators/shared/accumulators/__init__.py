"""The state of an aggregate for each group of rows: built from rows, merged, read.

Reading order

    accumulator       the protocol
    accumulator_plan  from a named aggregate to its accumulators and its output
    aggregate_plan    what comes of that
    bag_plans         that of aggregates which need all values of a group
    updating_plan     the same where rows are retracted
    output_columns    output columns from state columns
    since             the same for an aggregate that begins later than its stream
    partials          what SQL may compute of rows before they reach their task
    grouped_state     the accumulators of each key, window or session, as a table

Kinds
    counts            rows, rows with a value, the greatest event time
    sums              totals
    moments           mean and variance
    exact_sums        totals of doubles without rounding, from which rows can be retracted
    extremes          the least and the greatest value
    edges             the first and the last value
    edge_rows         the first and the last row, as a struct
    settled           the first value, where rows are retracted
    distinct          distinct values, exactly
    collected         the first values in an order, as a list
    distinct_totals   totals of distinct values
    bits              bits of integers
    bags              all values, with their number
    bag_functions     what is computed of these
    sketches          approximate counts and quantiles

Used by these
    lists             lists as columns of state
    exact_numbers     whole numbers of any size as columns of state
    value_order       any orderable column as whole numbers
"""
