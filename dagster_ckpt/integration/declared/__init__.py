"""What the user declares.

Reading order

    recovery_policy     how a stream recovers from a crash
    stream_options      the options of one streaming asset
    streaming_function  the user's function and options, attached to the Dagster asset
    parameters          the parameters of that function
    function_source     what its source shows without a run
    file_formats        what is known of a source's format and path
    upstream_assets     upstream streaming assets as parameters
    ordinary_inputs     ordinary assets as parameters
    run_config          the run config of a streaming asset
    resources           the two resources of a streaming location
    stream_jobs         one job for each stream
"""
