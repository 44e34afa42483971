"""Streams that read streams, made without Spark: what they have consumed is declared, not read."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import AppendOnly
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import InputSpec, SourceIdentity, SourcePosition
from tests.unit.history.made_streams import DEPARTURES, MadeStream, append, departures


@dataclass
class ReadingStream(MadeStream):
    """Each epoch has one row. What it has consumed of each upstream is what `read` says of it last."""

    at: dict[str, UpstreamPosition] = field(default_factory=dict)

    def positions(self, batch: int) -> tuple[SourcePosition, ...]:
        before = {position.source: position.current for position in self.writer.manifest.sources}
        identities = {name: source_of(name) for name in sorted(self.at)}
        return tuple(
            SourcePosition(identity, self.at[name].encode(), before.get(identity))
            for name, identity in identities.items()
        )

    def read(self, *upstreams: MadeStream, epoch: int | None = None, part: int = 0, parts: int = 0) -> int:
        """Commit an epoch that has consumed these upstreams up to their newest epochs, or up to `epoch`; its number."""
        for upstream in upstreams:
            manifest = upstream.writer.manifest
            at = UpstreamPosition.after(manifest) if epoch is None else UpstreamPosition(manifest.uuid, Epoch(epoch))
            self.at[upstream.name] = replace(at, part=part, parts=parts)
        return self.commit(departures({"UA": [1.0]}))


def source_of(stream: str) -> SourceIdentity:
    return SourceIdentity(FORMAT, stream, (("read", "table"),))


@dataclass
class MadeStreams:
    """A store and the streams that were made in it."""

    folder: Path
    made: list[MadeStream] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def source(self, name: str, retained: int = 20, epochs: int = 0) -> MadeStream:
        """A stream that reads no other one. Its first epoch is 2; each has one row more than the one before."""
        stream = MadeStream(self.url, name, append(), retained)
        self.made.append(stream)
        for _ in range(epochs):
            self.commit(stream)
        return stream

    def reader(self, name: str, *upstreams: MadeStream, retained: int = 20) -> ReadingStream:
        """A stream that reads these, and has consumed nothing yet."""
        sources = tuple(source_of(upstream.name) for upstream in upstreams)
        stream = ReadingStream(self.url, name, AppendOnly.build(InputSpec(sources, DEPARTURES)), retained)
        self.made.append(stream)
        return stream

    def back_up(self, stream: MadeStream) -> Path:
        """A copy of a stream's folder."""
        return Path(shutil.copytree(self.folder / stream.name, self.folder / "~backups" / stream.name))

    def restore(self, stream: MadeStream, backup: Path) -> None:
        """Put the copy back while nothing writes the stream, and open it."""
        stream.close()
        shutil.rmtree(self.folder / stream.name)
        shutil.copytree(backup, self.folder / stream.name)
        stream.open()

    def commit(self, stream: MadeStream, epochs: int = 1) -> int:
        return [stream.commit(departures({"UA": [1.0]})) for _ in range(epochs)][-1]

    def close(self) -> None:
        for stream in self.made:
            stream.close()
