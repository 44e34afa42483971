"""Spark: a stream declared, driven epoch by epoch, and worked by tasks on executors.

Reading order. Begin with `declared/stream`, then `driver/stream_run`, `driver/epoch_driver` and `task/epoch_task`.

    declared/       what the user declares, and what Spark says of it before anything runs
    driver/         the driver's side: a query, its micro-batches, one manifest for each
    upstreams/      streams that are read by streams
    task/           the executors' side: rows in, durable runs and ACKs out
    spark/          Spark's session, its class archive, and streams as DataFrames
    run_mode        how long a run goes on
    class_training  a run that fills the archive of Spark's classes
"""
