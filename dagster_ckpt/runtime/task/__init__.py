"""What runs on Spark's executors. Importing it loads neither Dagster nor the driver.

Reading order

    dataflow          the user's DataFrames, followed by our tasks
    epoch_task        a task: makes its shards' part of the epoch durable, and ACKs it
    shard_work        its rows through the operator
    arrow_work        what Arrow computes of columns as Spark does
    packed_rows       rows on their way to the tasks of a step, as Arrow tables
    scan              what Arrow reads in Spark's tasks in place of Spark
    file_scan         files read so
    parquet_columns   which columns of a Parquet file mean the same to Arrow and to Spark
    unchanged_steps   the epoch in which changed steps start over
    row_intake        rows in chunks of bounded size
    ack_rows          one reply for each shard: the only result of a task
    shard_assignment  which task works on which shards
    worker_engine     the state engine of a worker process
    worker_daemon     forks worker processes
"""
