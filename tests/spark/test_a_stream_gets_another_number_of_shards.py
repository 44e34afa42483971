"""Reshards between Dagster runs: the stream goes on, and its table equals a batch over all rows."""

from pathlib import Path

import pyarrow as pa

from dagster_ckpt import agg, tumbling
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest
from tests.spark.test_streams_in_event_time import counted, read, rows


def test_a_stream_goes_on_with_other_shards_and_equals_batch(stream: StreamUnderTest, inbox: Path) -> None:
    def function(spark: object) -> Stream:
        windowed = read(spark, inbox).window(tumbling("5 minutes"))  # type: ignore[arg-type]
        return windowed.aggregate(n=agg.count(), total=agg.sum("v"))

    def put(number: int) -> pa.Table:
        """Minutes of a window each; the last of each file leaves it open."""
        given = rows(*((f"k{key}", 5 * number + key % 5, key) for key in range(40)))
        drop(inbox, number, given)
        return given

    for number, shards in enumerate([16, 1, 8]):
        put(number)
        assert stream.run(function).ending == "input_done"
        assert stream.history().reshard(shards).shards == shards
    put(3)
    drop(inbox, 4, rows(("end", 60, 0)))
    result = stream.run(function)
    assert result.manifest.shards == 8
    assert {run.epoch > 0 for refs in result.manifest.runs["windows"] for run in refs} <= {True}
    expected = sorted((f"k{key}", 5 * number, 1, key) for number in range(4) for key in range(40))
    assert counted(stream) == expected
