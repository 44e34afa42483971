"""The runs of one state table within an epoch, as they become more and, merged, fewer.

Reading order

    table_runs  the runs of one table, and the merges that `lsm.compaction` chooses
    run_layers  those that look-ups search, newest first, and less of them once rows have expired
    run_writer  writes new runs, readable at once
"""
