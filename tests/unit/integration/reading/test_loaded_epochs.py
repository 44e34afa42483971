"""Inputs of an ordinary asset that say `consistency: "aligned"`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_ckpt import CheckpointCoordinatorResource, EpochIOManager
from tests.unit.history.reading_streams import MadeStreams

ALIGNED = {"consistency": "aligned"}


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[MadeStreams]:
    made = MadeStreams(tmp_path)
    yield made
    made.close()


def run(streams: MadeStreams, report: dg.AssetsDefinition, *others: Any, **resources: Any) -> dg.ExecuteInProcessResult:
    """Materialize the report, in a code location that only declares the streams."""
    epochs = EpochIOManager(checkpoints=CheckpointCoordinatorResource(url=streams.url))
    names = [stream.name for stream in streams.made]
    location = dg.Definitions(
        [*(dg.AssetSpec(name).with_io_manager_key("epochs") for name in names), *others, report],
        resources={"epochs": epochs, **resources},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = location.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=instance, raise_on_error=False)


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    error: Any = event.step_failure_data.error
    while error.cause is not None:
        error = error.cause
    return str(error.message)


# Dagster itself still reads what it has deprecated, where one resource holds another.
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_all_of_them_are_of_one_cut_although_the_streams_go_on(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=2)
    b = streams.reader("b", a)
    b.read(a)
    streams.commit(a)
    seen: list[tuple[int, int]] = []

    class GoingOn(dg.IOManager):
        """Between the two inputs the streams go on."""

        def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

        def load_input(self, context: dg.InputContext) -> int:
            streams.commit(a)
            b.read(a)
            return 0

    ins = {
        "a": dg.AssetIn(metadata=ALIGNED),
        "between": dg.AssetIn(input_manager_key="going_on"),
        "b": dg.AssetIn(metadata=ALIGNED),
    }

    @dg.asset(ins=ins)
    def report(a: pa.Table, between: int, b: pa.Table) -> None:
        seen.append((a.num_rows, b.num_rows))

    between = dg.AssetSpec("between")
    assert run(streams, report, between, going_on=GoingOn()).success
    assert run(streams, report, between, going_on=GoingOn()).success
    # Each epoch of them has a row more: `a` as `b` has consumed it, at the time of the first input.
    assert seen == [(2, 1), (4, 2)]


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"consistency": "newest"}, "'latest' or 'aligned'"),
        ({"consistency": "aligned", "epoch": 2}, "either an epoch or a consistency"),
        ({"consistency": "aligned", "as_of": "2100-01-01"}, "have one time"),
    ],
)
def test_what_cannot_go_together_is_refused(streams: MadeStreams, metadata: dict[str, Any], why: str) -> None:
    a = streams.source("a", epochs=1)
    streams.reader("b", a).read(a)

    @dg.asset(ins={"a": dg.AssetIn(metadata=metadata), "b": dg.AssetIn(metadata=ALIGNED)})
    def report(a: pa.Table, b: pa.Table) -> None: ...

    assert why in failure_of(run(streams, report))
