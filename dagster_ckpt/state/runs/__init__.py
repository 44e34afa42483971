"""The runs of one state table within an epoch, as they become more and, merged, fewer.

Reading order

    table_runs    the runs of one table
    run_layers    those that look-ups search, newest first
    merge_worker  carries out the merges that `lsm.compaction` chooses
    run_expiry    shows less of a run once rows have expired
    run_writer    writes new runs, readable at once
"""
