"""What the user declares.

Reading order

    stream            `Stream`: what a streaming asset's function returns
    step_parts        what the declaration of a stream is made of
    changes_from      `changes_from`: a stream of the changes of a table elsewhere
    change_formats    the formats of such changes, brought into one form
    queries           DataFrames for which Spark would keep state, as steps
    primary_key       a key that the user declares for the table
    row_work          what Spark does with the rows of a table one by one
    arrow_plan        what Arrow can do of a stream's stateless work in place of Spark
    arrow_scan        which inputs Arrow reads from their files, and why not the others
    pipeline          from a `Stream` to its operators
    step_operator     the operator of one step, checked
    renaming          a stream under the names that its state has
    function_digests  digests of the code of functions in Python
    column_origins    which columns the inputs of steps are computed from
    sources           the identity of a source, and how far it was read
"""
