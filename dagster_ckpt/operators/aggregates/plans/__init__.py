"""From a named aggregate to its accumulators and its output.

Reading order

    accumulator_plan  with all state in the row of the group, or in tables beside
    aggregate_plan    what comes of that
    bag_plans         that of aggregates which need all values of a group
    updating_plan     the same where rows are retracted
    output_columns    output columns from state columns
"""
