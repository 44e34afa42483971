"""A stream's table, and what epochs changed in it, read in pieces that fit into memory.

Made by operators from what manifests name; for every reader of it, also in Spark's executors: no Spark, no Dagster.

    operator   what makes it of a state table, where it does not only grow
    share      which part of it one of several readers takes
    changes    what epochs changed: each its own, or net
    rows       the table as an epoch shows it
    keys       the rows of some keys of it
    batches    the form in which readers get both
"""

from dagster_ckpt.tables.changes import net_changes, raw_changes
from dagster_ckpt.tables.keys import Keys, key_rows
from dagster_ckpt.tables.rows import files_of, table_rows
from dagster_ckpt.tables.share import Share

__all__ = ["Keys", "Share", "files_of", "key_rows", "net_changes", "raw_changes", "table_rows"]
