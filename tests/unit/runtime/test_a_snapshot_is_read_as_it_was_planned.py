"""The reader of an upstream's snapshot, where the pin is gone or another's after a part was planned."""

from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxFiles

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.upstream import Trouble, backfill_pin
from dagster_ckpt.runtime.upstream_source import Downstream, Read, UpstreamReader
from dagster_ckpt.storage.address import StoreAddress
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.pins import remove_pin, write_pin
from dagster_ckpt.storage.upstream_log import NothingFollowsError
from tests.unit.history.made_streams import MadeStream, departures

TASKS = 2


class Reading:
    """A downstream that begins with epoch 2 of its upstream."""

    def __init__(self) -> None:
        url = f"memory://{uuid4().hex}"
        self.up, self.down = MadeStream(url, "up"), MadeStream(url, "down")
        self.feed()
        self.pin()
        schema = self.up.operator.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))
        self.reader = UpstreamReader(Downstream(StoreAddress(url), "down", 10, TASKS), "up", Read.TABLE, schema)
        self.start = self.reader.initialOffset()
        self.end = self.reader.latestOffset(self.start, ReadMaxFiles(10))

    def feed(self) -> None:
        self.up.commit(departures({"UA": [1.0], "AA": [2.0]}))

    def pin(self) -> None:
        newest = self.up.writer.manifest
        write_pin(ManifestChain(self.up.writer.store, SystemClock()), self.pin_name, newest.retained[-1])

    def pin_anew(self) -> None:
        chain = ManifestChain(self.up.writer.store, SystemClock())
        remove_pin(chain.store, self.pin_name, chain.clock, chain.patience)
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
    reading.pin_anew()
    with pytest.raises(NothingFollowsError) as refused:
        reading.reader.partitions(reading.start, reading.end)
    assert refused.value.trouble is Trouble.UNPINNED


def test_no_row_of_another_epoch_is_read_for_it(reading: Reading) -> None:
    shares = reading.reader.partitions(reading.start, reading.end)
    reading.pin_anew()
    for share in shares:
        with pytest.raises(NothingFollowsError) as refused:
            list(reading.reader.read(share))
        assert refused.value.trouble is Trouble.UNPINNED
