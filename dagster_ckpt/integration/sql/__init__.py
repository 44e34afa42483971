"""Streams in SQL: folders of `.sql` files, with Spark's statements for declarative pipelines, as streaming assets.

Needs sqlglot, which finds without Spark what each query reads; at run time Spark itself parses and resolves it. Reading
order

    streaming_sql   `streaming_sql`: files in, assets out
    sql_assets      what it does: the asset of each table
    project         all statements of the files, by the names that they declare
    statements      what each kind of statement declares
    inputs          what a table reads, by the names in its query, and sources that are declared in SQL
    reads           the names in a query
    early_refusals  what its text alone shows that cannot be kept up to date
    properties      TBLPROPERTIES as options of `@streaming_asset`
    query           the streaming function of a query
    sql_file        the text of a file, its statements and places in it
"""
