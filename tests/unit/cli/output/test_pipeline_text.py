import pytest

from dagster_ckpt.cli.output.pipeline_text import source_line
from dagster_ckpt.ids import Epoch, StreamUuid, Term
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import FileSeen, IndexedList, IndexRef, SourceIdentity, SourcePosition
from dagster_ckpt.quantities import span

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("span_us", "words"), [(0, "0 ms"), (250, "250 us"), (-1_500_000, "-1.5 s"), (HOUR + 60_000_000, "1 h 1 min")]
)
def test_a_span_may_be_negative_or_shorter_than_a_millisecond(span_us: int, words: str) -> None:
    assert span(span_us) == words


FILES = SourceIdentity("parquet", "file:///data/departures")
KAFKA = SourceIdentity("kafka", "broker:9092", (("subscribe", "departures"),))
TOPIC = SourceIdentity("kafka", "", (("subscribe", "departures"),))
UPSTREAM = SourceIdentity(FORMAT, "delays", (("read", "table"),))
SEEN = IndexedList((IndexRef("index/a", 40, 9, "c"),), (FileSeen("f1", 1), FileSeen("f2", 2)))


def at(epoch: int, part: int = 0, parts: int = 0) -> str:
    return UpstreamPosition(StreamUuid("a" * 32), Epoch(epoch), part, parts, Term(3)).encode()


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (SourcePosition(FILES), "parquet file:///data/departures, no position yet"),
        (SourcePosition(FILES, '{"logOffset": 3}', files=SEEN), "parquet file:///data/departures, 42 files seen"),
        (
            SourcePosition(KAFKA, '{"departures":{"10":7,"2":9,"0":41},"arrivals":{"0":3}}'),
            "kafka broker:9092, next offset by partition: arrivals 0: 3; departures 0: 41, 2: 9, 10: 7",
        ),
        (SourcePosition(TOPIC, '{"departures":{"0":41}}'), "kafka, next offset by partition: departures 0: 41"),
        (SourcePosition(UPSTREAM, at(41)), "stream delays, read up to epoch 41"),
        (
            SourcePosition(UPSTREAM, at(41, 3, 8)),
            "stream delays, its table at epoch 41 is being read: 3 of 8 parts",
        ),
        (SourcePosition(UPSTREAM, at(41, 8, 8)), "stream delays, read up to epoch 41"),
        (SourcePosition(UPSTREAM, at(0)), "stream delays, nothing read yet"),
    ],
)
def test_line_of_a_source(position: SourcePosition, words: str) -> None:
    assert source_line(position) == words
