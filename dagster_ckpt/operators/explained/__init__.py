"""What the steps of a stream keep, and what limits that, in words for people.

Reading order

    explanation     a pipeline's steps, each explained, and the lines that say it
    kept            what a state table has, and what limits it
    kept_groups     the state of aggregates, with and without windows, and of process functions
    kept_joins      the state of joins
    kept_rows       the state of steps over whole rows
    operator_text   an operator with its parameters in a line
"""
