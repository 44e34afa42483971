"""Spark's query planner, Catalyst, which is private: the one room that knows its classes, and calls them.

Reading order

    values      nodes and expressions as values
    reader      reads them, a whole plan in two calls of the JVM
    catalyst    read a plan, rewrite it, build plans and DataFrames of parts
    query_plan  the plan that Spark has analysed
    plan_text   texts of plans that are the same in every process
    planner     what would take many calls of the JVM, in one: `Planner.java`
    moments     expressions that have another value at each start, or in each epoch
    work_text   the text of what Spark does between two steps, for the fingerprint of a step
    refusals    what to write in place of a node
"""
