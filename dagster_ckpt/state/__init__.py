"""The state engine: state tables within an epoch, their files, and what the tasks of a process share.

Reading order. Begin with `tables/task_state` and follow a row down: `tables/task_tables`, `tables/sorted_table`,
`runs/run_writer`.

    tables/        a task's state tables within an epoch
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
