"""Answers, as text for people and as JSON for programs.

Reading order

    documents        JSON documents
    text_tables      tables with units and relative times
    text_layout      how tables and lines are set
    amounts          counts, sizes and times as people read them
    result_order     the order of rows

Parts of both
    operator_text    an operator in a line
    source_text      how far a source was read
    snapshot_text    a snapshot of several streams
    subscriber_text  subscribers
    writer_text      the writer
"""
