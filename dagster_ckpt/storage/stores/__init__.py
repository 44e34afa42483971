"""Object stores: few verbs, each honest.

Reading order

    object_store    the protocol that every store implements
    folder          one folder of a store, as a store
    options         storage options, checked, and the secrets among them
    connections     the connections of this process, shared
    kinds           what each scheme opens, those of other packages too
    address         from a URL to a store

Implementations
    local           files of a local or shared POSIX file system
    memory          objects in the memory of this process, for tests
    over_fsspec/    S3, Google Cloud Storage, Azure and HDFS

Stores that fail
    retry           how often and for how long to retry, and a store whose calls are retried
    probe           proves that a store creates atomically, and refuses mounts that are not safe
"""
