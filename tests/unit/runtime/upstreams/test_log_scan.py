"""An upstream that Arrow reads: its offsets are those of Spark's source, and which rows a task can read alone."""

from uuid import uuid4

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.epochs.upstream import decode
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, ColumnAt
from dagster_ckpt.runtime.task.packed_rows import PackedRows
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.upstreams.downstream import BatchLimits, Planned, Read, table_key
from dagster_ckpt.runtime.upstreams.log_scan import LogScan
from dagster_ckpt.runtime.upstreams.upstream_rows import UpstreamRows
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream, departures

CARRIERS = RunningAggregate.build(("carrier",), {"flights": agg.count()}, InputSpec((SOURCE,), DEPARTURES))
READ = CARRIERS.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))


class Pair:
    """An upstream, and a stream that reads it."""

    def __init__(self) -> None:
        url = f"memory://{uuid4().hex}"
        self.up, self.down = MadeStream(url, "up", CARRIERS), MadeStream(url, "down", CARRIERS)
        planned = Planned(READ, table_key(CARRIERS.pipeline))
        rows = UpstreamRows(StoreAddress(url), "down", "up", Read.TABLE, planned)
        work = ArrowWork(tuple(map(ColumnAt, range(len(READ)))))
        self.scan = LogScan(READ, work, rows, BatchLimits(2, 1_000))

    def feed(self) -> None:
        self.up.commit(departures({"UA": [1.0], "AA": [2.0]}))

    def nests(self, keys: tuple[str, ...], tasks: int, schema: pa.Schema = READ) -> bool:
        packed = PackedRows(self.scan.work, (schema,), 0, keys, ShardAssignment.keyed(8, tasks))
        [piece] = self.scan.pieces(0, 0, self.start(), str(self.scan.next_offset(self.start())))
        return self.scan.nests(piece, packed)

    def start(self) -> str:
        """Where the log begins that was not there before the first look."""
        return self.scan.rows.beginning().encode()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_an_upstream_without_an_epoch_has_a_position_all_the_same(pair: Pair) -> None:
    """What asks how far a stream has read each upstream would take it for one that has not begun."""
    first = pair.scan.next_offset(None)
    assert first is not None
    assert decode(first).epoch == 0
    assert pair.scan.next_offset(first) == first, "nothing is new"
    assert pair.scan.pieces(0, 0, None, first) == []


def test_a_micro_batch_has_as_many_epochs_as_it_may(pair: Pair) -> None:
    at = pair.scan.next_offset(None)
    for _ in range(5):
        pair.feed()
    epochs = []
    while (found := pair.scan.next_offset(at)) != at:
        [piece] = pair.scan.pieces(0, 0, at, str(found))
        assert sum(batch.num_rows for batch in pair.scan.read([piece])) > 0
        epochs.append(decode(str(found)).epoch)
        at = found
    assert epochs == [3, 5, 6], "the first is number 2"
    pair.feed()
    assert pair.scan.next_offset(at, Epoch(6)) == at


def test_each_task_reads_the_rows_of_its_keys_where_they_are_by_the_same_key(pair: Pair) -> None:
    pair.feed()
    assert pair.nests(("carrier",), 2)
    assert pair.nests(("carrier",), 8)
    assert not pair.nests(("carrier",), 3), "the shards of a task are no share of all hashes"
    assert not pair.nests(("flights",), 2)
    assert not pair.nests(("carrier", "flights"), 2)
    wider = READ.set(0, pa.field("carrier", pa.large_string()))
    assert not pair.nests(("carrier",), 2, wider), "a value of another type has another hash"


def test_a_damaged_upstream_is_told_as_sparks_tasks_tell_it(pair: Pair) -> None:
    """The text is read by what knows what helps; an error of the kind would end the run without it."""
    at = pair.scan.next_offset(None)
    pair.feed()
    newest = pair.up.writer.manifest
    pair.up.writer.store.put(manifest_name(newest.version), b"damaged")
    for call in (pair.scan.newest_epoch, lambda: pair.scan.next_offset(at)):
        with pytest.raises(CheckpointDeclinedError, match=f"CorruptStateError: .*{newest.version}"):
            call()
