"""The driver's side of a stream.

Reading order

    stream_job        what is run and how: options, hooks, results
    stream_run        a run: open the stream, make epochs, retry what failed, end cleanly
    stream_checks     what can be refused before anything is created
    epoch_driver      one micro-batch in, one manifest out
    streaming_query   the query, and how it ends
    epoch_job         the Spark job of one epoch, with a time limit
    job_status        what Spark's status store says of it
    spark_checkpoint  Spark's checkpoint folder, built from the manifest
    spark_errors      Spark's errors as ours, which name the asset and what to do
    seen_files        the files a source has seen, as Spark's checkpoint spells them
    watermarks        how each input moves the watermark
    collector_thread  garbage collection beside the work
"""
