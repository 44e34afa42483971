"""What the user declares.

Reading order

    stream            `Stream`: what a streaming asset's function returns
    declared_sources  sources declared by name
    row_conditions    conditions on the rows of an updating table
    pipeline          from a `Stream` to a checked operator
    query_plan        the plan that Spark has analysed
    sources           the identity of a source, and how far it was read
"""
