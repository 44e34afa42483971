"""A stream's table, and what epochs changed in it, read in pieces that fit into memory.

Operators make it from what manifests name. For every reader, also in the executors: no Spark, no Dagster.

    share           the part of it that one of several readers takes
    table_changes   what epochs changed: epoch by epoch, or net (where a subscriber's rows are read)
    table_rows      the table as an epoch shows it
    key_rows        the rows of some keys of it
    table_difference  what differs between two tables
"""

from dagster_ckpt.tables.key_rows import Keys, key_rows
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_changes import net_changes, raw_changes
from dagster_ckpt.tables.table_rows import files_of, table_rows

__all__ = ["Keys", "Share", "files_of", "key_rows", "net_changes", "raw_changes", "table_rows"]
