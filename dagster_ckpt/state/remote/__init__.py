"""The bytes of a remote store: fetched where they are needed, and cached on the local disk.

Nothing here knows what a table is. Reading order

    remote_bytes    fetches bytes of one object to a `Place`, with few requests, several of them at once
    run_cache       the folder of cached runs, its limit, and what is evicted first
    cached_file     one run's file there: a `Place` on disk
    private_folder  a folder that only this user can read, as the cache's must be
"""
