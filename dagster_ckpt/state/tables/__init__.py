"""A task's state tables within an epoch: changed in memory, above the runs of epochs before.

Reading order

    task_state    the state of one task: all its shards together, from opening to durable
    task_tables   tables as operators use them: keyed ones, whatever the order of the keys, and timelines
    sorted_table  what both stand on: deltas in memory above runs
"""
