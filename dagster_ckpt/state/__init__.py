"""The state engine: state tables within an epoch, their files, and what the tasks of a process share.

Reading order. Begin with `task_state` and follow a row down: `sorted_table`, `runs/run_writer`.

    task_state     the state of one task within an epoch: all its shards, and tables as operators use them
    sorted_table   what these stand on: deltas in memory above runs
    runs/          the runs beneath them: opened, written, merged
    committed/     what is read of committed epochs: tables, single keys, change logs
    reshard        another number of shards
    remote/        the bytes of remote stores: fetched as needed, cached on the local disk

What the tasks of a process share
    engine         all of the following as one, and the runs that are open, local and remote
    objects        whole objects, created once and read
    memory_budget  the budget of bytes
    io_pool        the threads
"""
