"""Streams and deliveries in YAML, for projects that `dg` manages.

Reading order

    streaming_component      a stream: its attributes, and the definitions it makes
    delivery_component       a delivery: the same
    streaming_sql_component  a folder of streams in SQL: the same
    sources                  what a stream reads: a format of Spark's, another stream, or a Python function
    destinations             where a delivery goes, by the fields of its class
    steps                    the steps of a stream, in their order
    functions                the functions of a step: its aggregates, and those of `over`
    run_attributes           how streams run and what checks them: attributes of several components
    shared_resources         the resources, one object for all components of a project
    templates                texts with Jinja templates, which stay texts
    attribute_schema         the JSON schema of the attributes, with errors that lead to the place
    scaffolder               `dg scaffold defs` for all three
"""
