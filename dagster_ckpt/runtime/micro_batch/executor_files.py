"""Whether the driver sees what executors write into a folder that all hosts share.

A task reads the manifest that it builds on, so it sees what the driver writes. That says nothing of the other way: a
folder may be a copy of the shared one, such as a container's overlay, whose new files stay on its host. A commit would
name files that no other host has.
"""

import socket
from collections.abc import Iterator, Sequence

from dagster_ckpt.errors import CheckpointDeclinedError, StoreUnavailableError
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.object_names import parse_file_name
from dagster_ckpt.runtime.task.ack_rows import Reply, ShardDecline
from dagster_ckpt.storage.stores.object_store import ObjectStore


class ExecutorFiles:
    """Looks, once for each host, for the files of its first ACKs that name any. `store` is the stream's folder."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen = {socket.gethostname()}

    def decline_unseen(self, replies: Sequence[Reply], epoch: Epoch) -> tuple[Reply, ...]:
        """The replies of an epoch, with a decline in place of each ACK whose files are not there.

        Ask before the commit: until then nothing names the files.
        """
        new = [each for each in replies if isinstance(each, ShardAck) and each.host not in self._seen]
        if not new:
            return tuple(replies)
        declines = {id(ack): decline for ack in new if (decline := self._missing(ack, epoch)) is not None}
        absent = {decline.host for decline in declines.values()}
        self._seen |= {ack.host for ack in new if ack.host not in absent and any(_own_files(ack, epoch))}
        return tuple(declines.get(id(each), each) for each in replies)

    def _missing(self, ack: ShardAck, epoch: Epoch) -> ShardDecline | None:
        try:
            missing = next((name for name in _own_files(ack, epoch) if not self._store.exists(name)), None)
        except StoreUnavailableError as error:
            return ShardDecline(ack.shard, ack.host, type(error).__name__, str(error))
        if missing is None:
            return None
        return ShardDecline(
            ack.shard,
            ack.host,
            CheckpointDeclinedError.__name__,
            "the driver does not see what an executor has written: mount the same file system at this path on every "
            "host, not a copy or an overlay of it, or use a store on S3. "
            f"host={ack.host}, store={self._store.url}, missing={missing}",
        )


def _own_files(ack: ShardAck, epoch: Epoch) -> Iterator[str]:
    """The files that the task itself wrote: the ACK also names those of earlier epochs."""
    named = [run.path for table in ack.tables for run in table.runs if run.ancestor is None]
    named += [change.path for change in ack.changes]
    if ack.files_merged is not None:
        named.append(ack.files_merged.file.path)
    return (name for name in named if (file := parse_file_name(name)) is not None and file.epoch == epoch)
