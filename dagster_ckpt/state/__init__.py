"""The state engine at work: state tables within an epoch, their files, and what the tasks of a process share.

Reading order. Begin with `task_state` and follow a row down: `keyed_table`, `sorted_table`, `memtable`, `run_writer`.

A task's tables within an epoch
    task_state       the state of one task: all its shards together, from opening to durable
    keyed_table      a table as operators use it, whatever the order of the keys
    task_timeline    the same for a table that is sorted by time
    sorted_table     what both stand on: words in memory above runs
    memtable         the words: what was said and is not written yet

The runs beneath
    table_runs       the runs of one table, as they become more and, merged, fewer
    layers           those that look-ups ask, newest first
    merging          carries out the merges that `lsm.compaction.compaction` chooses
    expiry           shows less of a run once rows have expired
    run_writer       writes new runs, readable at once

After the epoch
    snapshot         all live rows of a table
    point_reads      the rows of some keys of it
    change_log       what the epoch changed, as Parquet files
    change_runs      the same where the new runs are the change log
    object_checks    every byte of a file read and compared
    table_files      files of change logs that are a table, made fewer

Another number of shards
    reshard          the stream is opened, and shown with it
    timeline_rewrite what no manifest alone can do

What the tasks of a process share
    engine           all of the following, as one
    memory           the budget of bytes
    io_pool          the threads
    open_runs        the runs that are open, local and remote
    objects          whole objects, created once and read
    remote/          the bytes of remote stores: brought as needed, cached on the local disk
"""
