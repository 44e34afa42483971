"""A stream's table, and what epochs changed in it, read in pieces that fit into memory.

Made by operators from what manifests name; for every reader of it, also in Spark's executors: no Spark, no Dagster.

    table_operator  what makes it of a state table, where it does not only grow
    share           which part of it one of several readers takes
    table_changes   what epochs changed: each its own, or net
    table_rows      the table as an epoch shows it
    key_rows        the rows of some keys of it
    read_batches    the batches in which readers get both
"""

from dagster_ckpt.tables.key_rows import Keys, key_rows
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_changes import net_changes, raw_changes
from dagster_ckpt.tables.table_rows import files_of, table_rows

__all__ = ["Keys", "Share", "files_of", "key_rows", "net_changes", "raw_changes", "table_rows"]
