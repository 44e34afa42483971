"""What `show` says of each source of a stream."""

import pytest

from dagster_ckpt.cli.output.source_text import in_words
from dagster_ckpt.ids import Epoch, StreamUuid, Term
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import FileSeen, IndexedList, IndexRef, SourceIdentity, SourcePosition

FILES = SourceIdentity("parquet", "file:///data/departures")
KAFKA = SourceIdentity("kafka", "broker:9092", (("subscribe", "departures"),))
UPSTREAM = SourceIdentity(FORMAT, "delays", (("read", "table"),))
SEEN = IndexedList((IndexRef("index/a", 40, 9, "c"),), (FileSeen("f1", 1), FileSeen("f2", 2)))


def at(epoch: int, part: int = 0, parts: int = 0) -> str:
    return UpstreamPosition(StreamUuid("a" * 32), Epoch(epoch), part, parts, Term(3)).encode()


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (SourcePosition(FILES), "parquet file:///data/departures, no position yet"),
        (SourcePosition(FILES, '{"logOffset": 3}', files=SEEN), "parquet file:///data/departures, 42 files seen"),
        (SourcePosition(KAFKA, '{"departures":{"0":41}}'), 'kafka broker:9092, at {"departures":{"0":41}}'),
        (SourcePosition(UPSTREAM, at(41)), "stream delays, read up to epoch 41"),
        (
            SourcePosition(UPSTREAM, at(41, 3, 8)),
            "stream delays, its table at epoch 41 is being read: 3 of 8 parts",
        ),
        (SourcePosition(UPSTREAM, at(41, 8, 8)), "stream delays, read up to epoch 41"),
        (SourcePosition(UPSTREAM, at(0)), "stream delays, nothing read yet"),
    ],
)
def test_where_a_stream_stands_in_its_source_is_said_as_people_say_it(position: SourcePosition, words: str) -> None:
    assert in_words(position) == words
