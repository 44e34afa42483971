"""The driver of a stream: its run, and the query that makes its micro-batches.

Reading order

    stream_job        a job: its options, hooks and result
    stream_run        a run of a stream: checked, opened, then one term after another
    terms             a run and its terms, which streams and deliveries share
    stream_work       what a stream's run does in its terms: queries, and retries of what fails
    open_stream       a stream that was opened, and what each of its queries is made of
    stream_query      one query, from the newest manifest on
    rebuild           rebuilds a stream alongside the live one, then switches over to it
    stream_checks     checks before anything is created
    batch_loop        what hands over micro-batches, and its end
    streaming_query   Spark's streaming query, which does where Spark reads
    source_loop       a thread of ours, which does where Arrow reads all sources
    spark_errors      Spark's errors as ours: with the asset and what to do
"""
