"""A stream in YAML: `StreamingComponent`, a component for projects that `dg` manages.

Reading order

    streaming_component  the component: its attributes, and the definitions it makes
    sources              what a stream reads: a format of Spark's, another stream, or a Python function
    steps                the steps of a stream, in their order
    aggregates           the aggregates of a step
    check_schedules      checks of the stream's table, and when they run
    shared_resources     the resources, one object for all components of a project
    templates            texts with Jinja templates, which stay texts
    attribute_schema     the JSON schema of the attributes, with errors that lead to the place
    scaffolder           `dg scaffold defs dagster_ckpt.StreamingComponent`
"""
