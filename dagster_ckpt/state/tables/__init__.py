"""A task's state tables within an epoch: changed in memory, above the runs of epochs before.

Reading order

    task_state      the state of one task: all its shards together, from opening to durable
    keyed_table     a table as operators use it, whatever the order of the keys
    timeline_table  the same for a table that is sorted by time
    sorted_table    what both stand on: deltas in memory above runs
    memtable        the deltas that are not written yet
"""
