"""A Dagster run that meets damage ends with the way back, and the run config goes it."""

from pathlib import Path
from typing import Any

import dagster as dg

from dagster_ckpt.protocol.object_names import folder_of, manifest_name
from tests.dagster.place import Place, failure_of


def cut_off(place: Place, name: str) -> None:
    path = Path(place.url.removeprefix("file://")) / folder_of(["counts"]) / name
    path.write_bytes(path.read_bytes()[:-3])


def from_epoch(epoch: int) -> dict[str, Any]:
    return {"ops": {"counts": {"config": {"from_epoch": epoch}}}}


def of_two_epochs(place: Place) -> tuple[dg.AssetsDefinition, int]:
    """A stream with an epoch of 1 and another of 100, and the number of the first."""
    counts = place.counts()
    place.drop(("a", 1))
    assert place.run(counts).success
    first = place.history().latest().epoch
    place.drop(("a", 100))
    assert place.run(counts).success
    return counts, first


def test_a_damaged_newest_manifest_or_run_is_gone_back_over_by_run_config(place: Place) -> None:
    counts, good = of_two_epochs(place)
    cut_off(place, manifest_name(place.history().manifest().version))
    message = failure_of(place.run(counts))
    assert f"good_epoch={good}" in message
    assert f"--epoch {good}" in message
    assert f"from_epoch: {good}" in message
    assert place.run(counts, run_config=from_epoch(good)).success
    assert place.table() == {"a": (2, 101)}, "what came after the good epoch was read again, once"

    good = place.history().latest().epoch
    place.drop(("a", 1000))
    assert place.run(counts).success
    newest = place.history().manifest()
    [damaged] = {run.path for shards in newest.runs["groups"] for run in shards if run.epoch == newest.epoch}
    cut_off(place, damaged)
    place.drop(("a", 10000))
    message = failure_of(place.run(counts))
    assert damaged in message
    assert f"good_epoch={good}" in message
    assert place.run(counts, run_config=from_epoch(good)).success
    assert place.table() == {"a": (4, 11101)}


def test_a_person_goes_back_and_the_next_run_goes_on_from_there(place: Place) -> None:
    counts, good = of_two_epochs(place)
    assert place.history().rollback(good).epoch == good
    assert place.table() == {"a": (1, 1)}
    assert place.run(counts).success
    assert place.table() == {"a": (2, 101)}
