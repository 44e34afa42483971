"""Object stores and the manifest chain: what is durable, who may write it, what may be removed.

Reading order. Begin with `stores/object_store` and `chain/manifest_chain`.

    stores/          object stores: the protocol, its implementations, retries, the probe
    chain/           the manifest chain: find the newest, read one, create the next
    leases/          the heartbeat of a writer, and whether its process is gone
    retention_refs/  who keeps epochs and files alive: pins, subscribers, forks
    writer/          the one writer of a stream, from opening to end
    operations/      garbage collection, rollback, fork
"""
