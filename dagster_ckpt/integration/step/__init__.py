"""One step of a Dagster run.

Reading order

    step            one stream opened, run and closed
    stream_step     the step's inputs, and what the runtime gets of them
    workload        what it runs: a stream, or a delivery
    reported_run    the run of it, reported to Dagster
    turns           which streams a Dagster run works on, one after another
    stream_rebuild  a run that rebuilds its stream first, and reports how far it is
    already_live    a run beside a live one of the same stream
    lost_epochs     a store that lacks what Dagster has shown
    run_watch       whether Dagster still wants the run
    parent_watch    a step must not outlive its run's worker, or `dagster dev`
"""
