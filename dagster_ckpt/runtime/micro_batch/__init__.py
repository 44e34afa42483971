"""One micro-batch of Spark's in, one manifest out.

Reading order

    epoch_driver      an epoch, from its rows to its commit
    epoch_plans       the plans of a query's epochs: who reads rows, and whether they are aggregated before a shuffle
    epoch_job         the Spark job of one epoch, with a timeout, and its progress
    driver_work       an epoch of few rows, worked without a job
    source_offsets    the sources, asked for what is new without a query of Spark's
    batch_pieces      what a micro-batch has that Arrow reads
    executor_files    whether the driver sees what executors write into a shared folder
    watermarks        how each input moves the watermark
    spark_checkpoint  Spark's checkpoint folder, built from the manifest, and what a micro-batch has read
    seen_files        the files that a source has read, as Spark's checkpoint spells them
    initial_tables    what the table is that a stream begins with
"""
