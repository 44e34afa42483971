"""The bytes of a remote store: brought where they are needed, and cached on the local disk.

In names, `far` says of an object or a run that it lies in a remote store. Nothing here knows what a table is.

Reading order
    far_bytes         brings bytes of one object to a `Place`, with few requests
    spread            does several of these requests at once
    run_cache         the folder of cached runs, its limit, and who goes first
    cached_file       one run's file there: a `Place` on disk
    private_folder    a folder that is this user's alone, as the cache's must be
"""
