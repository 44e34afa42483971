"""Spark's query planner, Catalyst, which is private: the one room that knows its classes, and calls them.

To all others what lies in the JVM is `Java`, which says nothing: mypy refuses to look into it.

Reading order

    values        nodes, expressions and types as values
    reader        reads them, a whole plan in two calls of the JVM
    catalyst      the planner of a session: read a plan, and what builds others
    builders/     plans and expressions made of others, and rewritten
    query_plan    what a DataFrame reads, and that Spark would keep no state for it
    trees         plans, nodes and sequences in the JVM
    plan_text     texts of plans that are the same in every process
    planner       what would take many calls of the JVM, in one: `Planner.java`
    physical_plan a plan that is made once and put on the rows of each micro-batch
    moments       expressions that have another value at each start, or in each epoch
    work_text     the text of what Spark does between two steps, for the fingerprint of a step
    refusals      what to write in place of a node
"""
