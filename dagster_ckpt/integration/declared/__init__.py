"""What the user declares.

Reading order

    recovery_policy     how a stream recovers from a crash
    stream_options      the options of one streaming asset
    streaming_function  the user's function and options, attached to the Dagster asset, and the job of it alone
    parameters          the parameters of that function
    file_formats        what is known of a source's format and path
    asset_inputs        upstream streaming assets, and ordinary ones, as parameters
    run_config          the run config of a streaming asset
    resources           the two resources of a streaming location
"""
