"""From a query of Spark's to a `Stream`: the plan is cut at its nodes that keep state, and each becomes a step.

Reading order. Begin with `compiler`.

    returned    what a streaming function returns
    direct_call the function itself, called outside of Dagster
    compiler    walks the optimised plan, bottom up
    joins       joins, by equal keys or with a table that stays
    matches     joins that ask more than equal keys, made of those
    subqueries  subqueries of one value, as joins
    partitions  the first rows of a key, and functions over a partition
    groups      aggregates of groups
    aggregates  Spark's aggregates as the engine's
    functions/  functions over a partition, collations, nested values
    keys        a key's value as columns that a step can have as keys, and which columns identify a table's rows
    stand_ins   DataFrames that stand for streams, as tables of a query
    parts       what Spark does with the rows between two steps
"""
