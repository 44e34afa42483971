"""What a step reports to Dagster: events of the asset, and what they show.

Reading order

    step_events       the newest epoch, at most every `event_interval`
    event_totals      what the events of a stream add up to
    epoch_metadata    an epoch as Dagster metadata, and what each of several steps did in it
    table_metadata    the stream's table as Dagster metadata
    recoveries        which Dagster runs replaced others, and why
    outdated_changes  whether changes of a table elsewhere are applied
    awaited_input     what a stream without an epoch waits for
"""
