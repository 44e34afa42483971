"""The committed offsets, written to consumer groups too, for tools that show the lag of groups.

Nothing depends on them: a background thread writes them after the epoch is committed. A failure is logged, and the next
epoch writes again. The brokers forget the offsets of a group without members after a week (their
`offsets.retention.minutes`), so a quiet stream repeats its own each hour.
"""

import logging
import threading
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dagster_ckpt.protocol.epochs.topic_offsets import Offsets, next_offsets
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.declared.sources import StreamSource, positions_by_source
from dagster_ckpt.runtime.kafka.brokers import Brokers, reason_text

_LOG = logging.getLogger(__name__)

_AGAIN_S = 3_600.0
_END_S_MAX = 5.0


class GroupCommits:
    """Writes the positions of the sources that name a consumer group (`commitGroupId`) to that group."""

    def __init__(self, asset: str, sources: Sequence[StreamSource], session: SparkSession) -> None:
        self._asset = asset
        self._sources = sources
        self._groups = {
            at: (source.kafka.group, Brokers(session, source.kafka.connection))
            for at, source in enumerate(sources)
            if source.kafka is not None and source.kafka.group
        }
        self._newest: Manifest | None = None
        self._is_due, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def commit(self, manifest: Manifest) -> None:
        """Write the positions of `manifest`, the newest, soon. Returns at once."""
        self._newest = manifest
        self._is_due.set()
        if self._groups and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="group-commits", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Write what is due, for up to 5 s, and write no more."""
        self._ended.set()
        self._is_due.set()
        if self._thread is not None:
            self._thread.join(_END_S_MAX)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._is_due.wait(_AGAIN_S)
            self._is_due.clear()
            is_last = self._ended.is_set()  # before it writes: what was due at the end is written
            if self._newest is not None:
                self._commit(self._newest)
        for _, brokers in self._groups.values():
            brokers.close()

    def _commit(self, manifest: Manifest) -> None:
        positions = positions_by_source(self._sources, manifest)
        for at, (group, brokers) in self._groups.items():
            try:
                offsets: Offsets = next_offsets(positions[at])
                if offsets:
                    brokers.commit(group, offsets)
                self._trouble = ""
            except (Py4JError, OSError) as error:
                reason = reason_text(error)
                if reason != self._trouble:  # once, not with each epoch
                    _LOG.warning(
                        "the committed offsets were not written to the consumer group. They only inform: the stream is "
                        "not affected. A group with live members accepts none from outside. asset=%s, group=%s, "
                        "epoch=%s, reason=%s",
                        self._asset,
                        group,
                        manifest.epoch,
                        reason,
                    )
                self._trouble = reason
