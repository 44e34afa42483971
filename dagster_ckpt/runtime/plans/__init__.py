"""From a query of Spark's to a `Stream`: the plan is cut at its nodes that keep state, and each becomes a step.

Reading order. Begin with `compiler`.

    returned        what a streaming function returns
    called          the function itself, called outside of Dagster
    compiler        walks the optimised plan, bottom up
    joins           joins, by equal keys or with a table that stays
    matches         joins that ask more than equal keys, made of those
    subqueries      subqueries of one value, as joins
    partitions      the first rows of a key, and functions over a partition
    groups          aggregates of groups
    aggregates      Spark's aggregates as the engine's
    collations      those of text with a collation, made of aggregates without
    over_functions  Spark's functions over a partition as the engine's
    over_algebra    those that are made of plainer ones
    skipped_nulls   those with IGNORE NULLS
    constants       rows that a query has in its text
    sessions        windows of sessions, as keys of an aggregate
    keys            a key's value as columns that a step can have as keys
    table_keys      which of its columns identify the rows of a query's table
    exact_texts     nested values as texts
    stand_ins       DataFrames that stand for streams, as tables of a query
    refusals        what to write in place of a node
    parts           what Spark does with the rows between two steps
    work_text       the text of that, for the fingerprint of a step
"""
