"""One step of a Dagster run.

Reading order

    step            one stream opened, run and closed
    workload        what it runs: a stream, or a delivery
    selection       which streams a Dagster run works on
    already_live    a run beside a live one of the same stream
    empty_store     a store in which nothing is, although Dagster knows the stream
    restored_store  a stream that lacks the epoch that Dagster has shown
    run_mutex       streams of one run work one after another
    run_watch       whether Dagster still wants the run
    parent_watch    a step must not outlive its run's worker, or `dagster dev`

Reports to Dagster
    step_events     the newest epoch, at most every `event_interval`
    event_totals    what the events of a stream add up to
    epoch_metadata  an epoch as Dagster metadata
    step_table      what each of several steps did
    table_metadata  the stream's table as Dagster metadata
    recoveries      which Dagster runs replaced others, and why
    rebuild_report  how far a rebuild is
    outdated_changes  whether changes of a table elsewhere are applied
    awaited_input   what a stream without an epoch waits for
"""
