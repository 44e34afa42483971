"""Results, as text for people and as JSON for programs.

Reading order

    documents        JSON documents
    text_tables      tables with units and relative times
    text_layout      layout of tables and lines
    amounts          counts, sizes and times for people
    result_order     the order of rows

Parts of both
    explanation_text what the steps of a stream keep
    pipeline_text    the position in a source
    snapshot_text    a snapshot of several streams
    subscriber_text  subscribers
    writer_text      the writer
"""
