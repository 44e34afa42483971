"""What is read of committed epochs.

Reading order

    table_snapshot  all live rows of a table, and what epochs changed where the new runs are the change log
    point_reads     the rows of some keys of it
    change_log      what an epoch changed, as Parquet files
    append_files    the files of an append-only table, merged
    object_checks   every byte of a file read, and its checksums compared
"""
