"""Dagster: streams as assets that recover by themselves.

Reading order. Begin with `asset`, then `step/step`, `recovery/sensor` and `recovery/decision`.

    asset             `@streaming_asset`
    deliver           `deliver`: a stream exactly once into another system
    sql/              `streaming_sql`: streams in SQL
    explain           `explain`: what an asset will keep, before it runs
    asset_options     what it takes, and what it refuses
    streaming_assets  the asset that runs a step: op, signature and checks, with defaults for its resources
    definitions       everything a code location needs, in one call
    declared/         what the user declares: options, resources, parameters
    step/             one step of a Dagster run: one stream opened, worked and closed
    events/           what a step reports to Dagster
    recovery/         which run must be started again, and when
    reading/          epochs as inputs of ordinary assets
    epoch_checks      which checks of a stream's table run while it runs, and when
    check_jobs        the job of these checks, and what launches it
    component/        `StreamingComponent`, `StreamingSqlComponent` and `DeliveryComponent`: for projects of `dg`
    dagster_dev       the `dagster dev` that a process belongs to
    dagster_names     names that Dagster sees
    launch            launches a stream's job, for the command line
"""
