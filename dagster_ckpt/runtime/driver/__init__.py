"""The driver of a stream.

Reading order

    stream_job        a job: its options, hooks and result
    stream_run        a run of a stream: checked, opened, then one term after another
    terms             a run and its terms, which streams and deliveries share
    stream_work       what a stream's run does in its terms: queries, and retries of what fails
    open_stream       a stream that was opened, and what each of its queries is made of
    stream_query      one query, from the newest manifest on
    rebuild           rebuilds a stream alongside the live one, then switches over to it
    stream_checks     checks before anything is created
    initial_tables    what the table is that a stream begins with
    batch_plan        what is done with each micro-batch's rows, planned once
    partial_choice    whether Spark aggregates rows before it shuffles them
    epoch_plans       the plans of a query's epochs, one for each such choice
    epoch_driver      one micro-batch in, one manifest out
    streaming_query   the streaming query and its end
    epoch_job         the Spark job of one epoch, with a timeout
    executor_files    whether the driver sees what executors write into a shared folder
    job_status        its progress in Spark's status store
    spark_checkpoint  Spark's checkpoint folder, built from the manifest
    spark_errors      Spark's errors as ours: with the asset and what to do
    seen_files        the files that a source has read, as Spark's checkpoint spells them
    read_ranges       the offsets and files of a micro-batch, for errors about its rows
    watermarks        how each input moves the watermark
    collector_thread  garbage collection in the background
"""
