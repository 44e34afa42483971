"""The reader of an upstream whose pin is removed, or whose pipeline changes, after a part was planned."""

from uuid import uuid4

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.operators import AppendOnly, Operator, RunningAggregate, agg
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.epochs.upstream import Trouble, backfill_pin
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.upstreams.downstream import Downstream, Planned, Read, table_key
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import remove_pin, write_pin
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream, departures

pytest.importorskip("pyspark.sql.streaming.datasource", reason="a stream that reads a stream needs Spark 4.2")
from pyspark.sql.streaming.datasource import ReadMaxFiles

from dagster_ckpt.runtime.upstreams.upstream_source import UpstreamReader

TASKS = 2


class Reading:
    """A downstream that begins with epoch 2 of its upstream."""

    def __init__(self) -> None:
        url = f"memory://{uuid4().hex}"
        self.up, self.down = MadeStream(url, "up"), MadeStream(url, "down")
        self.feed()
        self.pin()
        schema = self.up.operator.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))
        reads = Downstream(StoreAddress(url), "down", 10, TASKS)
        self.reader = UpstreamReader(reads, "up", Read.TABLE, Planned(schema, table_key(self.up.operator.pipeline)))
        self.start = self.reader.initialOffset()
        self.end = self.reader.latestOffset(self.start, ReadMaxFiles(10))

    def feed(self) -> None:
        self.up.commit(departures({"UA": [1.0], "AA": [2.0]}))

    def pin(self) -> None:
        newest = self.up.writer.manifest
        write_pin(ManifestChain(self.up.writer.store, SystemClock()), self.pin_name, newest.retained[-1])

    def replace_pin(self) -> None:
        chain = ManifestChain(self.up.writer.store, SystemClock())
        remove_pin(chain, self.pin_name)
        self.feed()
        self.pin()

    @property
    def pin_name(self) -> str:
        return backfill_pin(self.down.writer.manifest.uuid, self.down.writer.manifest.term)


@pytest.fixture
def reading() -> Reading:
    return Reading()


def test_the_planned_part_is_the_table_of_the_pinned_epoch(reading: Reading) -> None:
    shares = reading.reader.partitions(reading.start, reading.end)
    rows = pa.Table.from_batches([batch for share in shares for batch in reading.reader.read(share)])
    assert (len(shares), reading.end["epoch"]) == (TASKS, 2)
    assert sorted(zip(rows["carrier"].to_pylist(), rows["flights"].to_pylist(), strict=True)) == [("AA", 1), ("UA", 1)]


def test_no_part_of_another_epoch_is_planned_for_it(reading: Reading) -> None:
    reading.replace_pin()
    with pytest.raises(NothingFollowsError) as refused:
        reading.reader.partitions(reading.start, reading.end)
    assert refused.value.trouble is Trouble.UNPINNED


def test_no_row_of_another_epoch_is_read_for_it(reading: Reading) -> None:
    shares = reading.reader.partitions(reading.start, reading.end)
    reading.replace_pin()
    for share in shares:
        with pytest.raises(NothingFollowsError) as refused:
            list(reading.reader.read(share))
        assert refused.value.trouble is Trouble.UNPINNED


WITH_GATE = InputSpec((SOURCE,), DEPARTURES.append(pa.field("gate", pa.int64())))


def _flights(*more: str, keys: tuple[str, ...] = ("carrier",)) -> RunningAggregate:
    aggregations = {"flights": agg.count()} | {name: agg.max("dep_delay") for name in more}
    return RunningAggregate.build(keys, aggregations, WITH_GATE)


@pytest.mark.parametrize("begun", [False, True], ids=["log", "snapshot"])
@pytest.mark.parametrize(
    ("planned", "opened", "is_read"),
    [
        (_flights(), _flights(), True),
        (_flights(), _flights("longest"), True),
        (_flights("longest"), _flights(), False),
        (_flights(), _flights(keys=("carrier", "gate")), False),
        (_flights(), AppendOnly.build(WITH_GATE), False),
        (AppendOnly.build(InputSpec((SOURCE,), _flights().pipeline.output)), _flights(), False),
    ],
    ids=["the same", "a column more", "a column less", "another key", "rows that stay", "rows that change"],
)
def test_an_empty_upstream_that_was_opened_with_another_pipeline_is_read_by_no_older_plan(
    planned: Operator | AppendOnly, opened: Operator | AppendOnly, is_read: bool, begun: bool
) -> None:
    url = f"memory://{uuid4().hex}"
    up, down = MadeStream(url, "up", planned), MadeStream(url, "down")
    pipeline = planned.pipeline
    change = [] if pipeline.appends else [pa.field(CHANGE_TYPE, pa.string(), nullable=False)]
    columns = Planned(pa.schema([*pipeline.output, *change]), table_key(pipeline))
    reader = UpstreamReader(Downstream(StoreAddress(url), "down", 10, TASKS), "up", Read.TABLE, columns)
    start = reader.initialOffset()
    up.operator = opened
    up.open()
    up.commit(pa.table({"carrier": ["UA"], "dep_delay": [1.0], "gate": [7]}, schema=WITH_GATE.schema))
    if begun:
        name = backfill_pin(down.writer.manifest.uuid, down.writer.manifest.term)
        write_pin(ManifestChain(up.writer.store, SystemClock()), name, up.writer.manifest.retained[-1])
    end = reader.latestOffset(start, ReadMaxFiles(10))
    assert ("part" in end) == begun
    if is_read:
        batches = [batch for share in reader.partitions(start, end) for batch in reader.read(share)]
        assert pa.Table.from_batches(batches)["flights"].to_pylist() == [1]
        return
    with pytest.raises(NothingFollowsError) as refused:
        reader.partitions(start, end)
    assert refused.value.trouble is Trouble.PLANNED_OTHERWISE
