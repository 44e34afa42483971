"""What the user declares.

Reading order

    recovery_policy     how a stream comes back after a crash
    stream_options      the options of one streaming asset
    streaming_function  what a streaming asset is beside a Dagster asset
    parameters          what its function asks for
    upstream_assets     upstream streaming assets as parameters
    run_config          the run config of a streaming asset
    resources           the two resources of a streaming location
    stream_jobs         one job for each stream
"""
