"""Several streams at one moment: an epoch of each, chosen once, and read from then on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.history.info.epoch_info import EpochInfo
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.manifest.manifest import Manifest


@dataclass(frozen=True)
class Snapshot:
    """One epoch of each of several streams. What it shows never changes, although the streams go on.

    `epochs` are the chosen ones, by stream. `left_out` are streams that were asked for, but whose tables are still
    being created. It can be read for as long as its epochs are retained, and for the grace period after that.
    """

    epochs: Mapping[str, Epoch]
    left_out: tuple[str, ...]
    _manifests: Mapping[str, Manifest] = field(repr=False, compare=False)
    _streams: Mapping[str, StreamHistory] = field(repr=False, compare=False)

    @property
    def streams(self) -> list[str]:
        """The names of the streams that it shows, in the order in which they were asked for."""
        return list(self.epochs)

    def read(self, stream: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The table of one of the streams; its rows come in no particular order. `columns` chooses columns.

        Raises `InvalidPipelineError` for a stream that it does not show, and where its epoch was retired so long ago
        that its files are gone; `CorruptStateError` where they are damaged.
        """
        manifest = self.manifest(stream)
        return self._streams[stream].read_shown(manifest, columns)

    def info(self, stream: str) -> EpochInfo:
        """Facts about the chosen epoch of a stream; reads none of its rows."""
        return self._streams[stream].info_shown(self.manifest(stream))

    def manifest(self, stream: str) -> Manifest:
        """The manifest that shows the chosen epoch of a stream: its full description, as a value."""
        if stream in self._manifests:
            return self._manifests[stream]
        if stream in self.left_out:
            raise InvalidPipelineError(
                f"the stream was left out, because its table is still being created: wait for that, or take the "
                f"snapshot with include_creating=True. stream={stream!r}"
            )
        raise InvalidPipelineError(
            f"the snapshot does not show this stream: name it when you take one.{did_you_mean(stream, self.epochs)} "
            f"stream={stream!r}, streams={self.streams}"
        )
