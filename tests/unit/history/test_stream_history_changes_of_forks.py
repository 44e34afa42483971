"""A fork counts its epochs from 1 and has the state of a stream that did as well: no number may be two epochs'."""

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.operators import Operator
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.storage.operations.collector import Collector
from tests.unit.history.made_streams import DEPARTURES, HOUR_US, SOURCE, TIMED, MadeStream, by_hour
from tests.unit.state.epochs import EAGER

CHANGED = DEPARTURES.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))


def mirror() -> Materializer:
    return Materializer.build(("carrier",), InputSpec((SOURCE,), CHANGED))


def changes(kind: str, *carriers: str) -> pa.Table:
    return pa.Table.from_pylist([{"carrier": each, "dep_delay": 1.0, CHANGE_TYPE: kind} for each in carriers], CHANGED)


def timed(carrier: str, hour: int, delay: float = 1.0) -> pa.Table:
    return pa.Table.from_pylist([{"carrier": carrier, "dep_delay": delay, "at": hour * HOUR_US}], TIMED)


@pytest.fixture
def store() -> CheckpointStore:
    return CheckpointStore(f"memory://{uuid4().hex}")


def made(store: CheckpointStore, operator: Operator, name: str = "origin") -> MadeStream:
    return MadeStream(store.url, name, operator, limits=EAGER)


def carriers(history: StreamHistory) -> set[str]:
    return set(history.read()["carrier"].to_pylist())


def test_a_row_that_goes_is_gone_although_its_epoch_has_the_number_of_the_one_it_came_in(
    store: CheckpointStore,
) -> None:
    stream = made(store, mirror())
    stream.commit(changes(INSERT, "UA"))
    came = stream.commit(changes(INSERT, "AA"))
    store.stream("origin").fork("fork")
    fork = made(store, mirror(), "fork")
    assert fork.commit(changes(DELETE, "AA")) == came
    assert carriers(store.stream("fork")) == {"UA"}


def test_a_fork_of_a_fork_that_needs_no_file_of_the_first_still_counts_its_epochs(store: CheckpointStore) -> None:
    stream = made(store, mirror())
    for carrier in ("UA", "AA", "DL", "WN"):
        stream.commit(changes(INSERT, carrier))
    origin = store.stream("origin").fork("fork").manifest().ancestors[0]
    fork = replace(made(store, mirror(), "fork"), retained=1)
    fork.commit(changes(DELETE, "UA", "AA", "DL", "WN"))
    while store.stream("origin").pins():
        fork.commit(changes(INSERT, "filler"))
        fork.commit(changes(DELETE, "filler"))
        history = store.stream("fork")
        Collector(history._chain, history._root, grace_ms=-1_000).collect()
    at = fork.commit(changes(INSERT, "B6"))
    ancestors = store.stream("fork").fork("second").manifest().ancestors
    assert [(each.stream, each.epoch) for each in ancestors] == [("origin", origin.epoch), ("fork", at)]
    second = made(store, mirror(), "second")
    while second.writer.next_epoch < origin.epoch:
        second.commit(changes(INSERT, "filler"))
        second.commit(changes(DELETE, "filler"))
    assert second.commit(changes(DELETE, "B6")) == origin.epoch  # so many more than `at` as the origin had
    assert carriers(store.stream("second")) == set()


def test_late_rows_of_an_epoch_of_the_same_number_are_kept_beside_each_other(store: CheckpointStore) -> None:
    stream = made(store, by_hour())
    stream.commit(timed("UA", 9), hours=9)
    stream.commit(timed("UA", 1, delay=1.0))
    store.stream("origin").fork("fork")
    fork = made(store, by_hour(), "fork")
    assert fork.commit(timed("UA", 1, delay=2.0)) == stream.writer.manifest.epoch
    assert sorted(store.stream("fork").late_rows()["dep_delay"].to_pylist()) == [1.0, 2.0]


def test_the_first_row_of_a_key_stays_the_first(store: CheckpointStore) -> None:
    operator = Deduplicate.build(("carrier",), InputSpec((SOURCE,), TIMED), "first", "at")
    stream = made(store, operator)
    stream.commit(timed("UA", 5))
    stream.commit(timed("AA", 5))
    store.stream("origin").fork("fork")
    fork = made(store, operator, "fork")
    assert fork.commit(timed("AA", 2)) == stream.writer.manifest.epoch
    rows = store.stream("fork").read()
    assert {row["carrier"]: row["at"].hour for row in rows.to_pylist()} == {"UA": 5, "AA": 5}
