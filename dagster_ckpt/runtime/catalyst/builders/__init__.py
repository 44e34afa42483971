"""What builds plans and expressions of others, and rewrites them.

Reading order

    packages    Spark's classes in the JVM of a session, its parser and its settings
    expressions expressions of others, columns, constants
    conversions the same value in another type, as a text, or by a collation
    calls       calls of aggregates, and of functions over a partition
    nodes       plans of others
    rules       rules of the optimizer
"""
