"""Spark's session, and streams as DataFrames.

Reading order

    jvm                      classes of Spark's JVM, and sequences of Scala's
    session                  the settings that a stream needs, and how many tasks Spark may run at once
    no_max_file_age_session  the session that a streaming asset's function is given
    package_archive          this package as an archive, for executors on other hosts
    class_archive            an archive of the classes that Spark's JVM loads
    process_folder           the private temporary folder of this process and its JVM
    scratch_files            how Spark writes scratch checkpoints
    arrow_schemas            Spark's schemas as Arrow's and back
    wide_rows                how Spark cuts rows into Arrow batches, and plans epochs of wide ones
    file_index               the files that a file source would read now
    unseen_store             what to raise on a host that does not see the store
    spark_reader             streams as DataFrames
    batch_source             the batch source that they read
"""
