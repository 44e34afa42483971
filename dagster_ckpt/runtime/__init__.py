"""Spark: what the user declares, the driver that makes epochs, and the tasks on executors.

Reading order. Begin with `declared/stream`, then `driver/stream_run`, `micro_batch/epoch_driver` and `task/epoch_task`.

    declared/       what the user declares, checked against Spark's plan before anything runs
    plans/          queries of Spark's, as steps of a stream
    driver/         the driver: a run, its terms and queries
    micro_batch/    one micro-batch in, one manifest out
    kafka/          Kafka, beside Spark's own source of it
    lag/            how far a stream is behind its sources
    upstreams/      streams that read streams
    catalyst/       Spark's query planner, by its private API
    task/           the executors: rows in, durable runs and ACKs out
    spark/          Spark's session, its class archive, and streams as DataFrames
    run_mode        when a run ends
    class_training  a run that fills the class archive
"""
