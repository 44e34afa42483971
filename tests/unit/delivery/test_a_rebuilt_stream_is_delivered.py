"""A stream that was rebuilt is delivered like any other: the epoch of the swap has what differs, and no more."""

from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.history.swap import swap
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Owner
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from tests.unit.delivery.delivering import Delivering
from tests.unit.history.made_streams import DEPARTURES, SHARDS, SOURCE, MadeStream, aggregate, departures
from tests.worlds.streams import a_holder

BATCHES: list[dict[str | None, list[float]]] = [{"UA": [1.0, 5.0], "AA": [2.0]}, {"DL": [4.0], "B6": [7.0]}]


def _with_the_longest() -> RunningAggregate:
    aggregations = {"flights": agg.count(), "mean_delay": agg.avg("dep_delay"), "longest": agg.max("dep_delay")}
    return RunningAggregate.build(("carrier",), aggregations, InputSpec((SOURCE,), DEPARTURES))


def _swap(delivering: Delivering, operator: RunningAggregate, rows: list[dict[str | None, list[float]]]) -> Manifest:
    """Build the stream beside with these rows, in as many files as the stream has read, and let it take over."""
    name, root, clock = "delays/~rebuild-1", open_store(delivering.url), SystemClock()
    beside = MadeStream(delivering.url, name, operator)
    for batch in rows:
        beside.commit(departures(batch))
    beside.close()
    chain, other = (ManifestChain(folder_store(root, folder_of(each.split("/"))), clock) for each in ("delays", name))
    opening = Opening(
        stream="delays",
        owner=Owner("instance-1", "delays"),
        pipeline=operator.pipeline,
        shards=SHARDS,
        holder=a_holder(),
        root_run="rebuild",
        take_over=Takeover.ALWAYS,
    )
    return swap(root, chain, other, opening)


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    found = Delivering(tmp_path)
    for batch in BATCHES:
        found.stream.commit(departures(batch))
    return found


def test_an_upsert_delivery_writes_what_differs(delivering: Delivering) -> None:
    delivering.deliver()
    # Other code leaves UA's second flight and all of DL out, and finds one of HA.
    _swap(delivering, aggregate(), [{"UA": [1.0], "AA": [2.0]}, {"HA": [3.0], "B6": [7.0]}])
    delivered = delivering.deliver().manifest
    assert delivering.delivered() == delivering.table()
    assert [row[0] for row in delivering.table()] == ["AA", "B6", "HA", "UA"]
    assert delivered.statistics.rows_in == 4, "the row of UA before and after, DL that goes, HA that comes"


def test_a_column_that_came_is_delivered(delivering: Delivering) -> None:
    delivering.deliver()
    _swap(delivering, _with_the_longest(), BATCHES)
    delivering.deliver()
    columns = "carrier, flights, longest"
    assert delivering.delivered(columns) == [("AA", 1, 2.0), ("B6", 1, 7.0), ("DL", 1, 4.0), ("UA", 2, 5.0)]


def test_an_append_delivery_has_the_changes_of_the_swap_like_those_of_any_epoch(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, mode=DeliveryMode.APPEND)
    delivering.stream.commit(departures({"UA": [1.0, 5.0]}))
    delivering.deliver()
    swapped = _swap(delivering, aggregate(), [{"UA": [1.0], "AA": [2.0]}])
    delivering.deliver()
    assert delivering.delivered("_epoch, carrier, flights, _change_type")[1:] == [
        (swapped.epoch, "AA", 1, "insert"),
        (swapped.epoch, "UA", 1, "update_postimage"),
        (swapped.epoch, "UA", 2, "update_preimage"),
    ]
