"""What the user declares.

Reading order

    stream            `Stream`: what a streaming asset's function returns
    changes_from      `changes_from`: a stream of the changes of a table elsewhere
    change_formats    the formats of such changes, brought into one form
    declared_sources  sources declared by name
    row_conditions    conditions on the rows of an updating table
    pipeline          from a `Stream` to a checked operator
    query_plan        the plan that Spark has analysed
    sources           the identity of a source, and how far it was read
"""
