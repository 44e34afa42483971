"""`since="now"` finds the beginning of its own step."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Pipeline, SourceIdentity
from dagster_ckpt.protocol.transitions.later_columns import beginnings
from dagster_ckpt.runtime.declared.pipeline import Dataflow
from dagster_ckpt.runtime.driver.stream_checks import CheckedStream, _with_beginnings
from tests.worlds.manifests import a_manifest

ROWS = pa.schema([("carrier", pa.string()), ("at", pa.timestamp("us", "UTC"))])
HOUR, DAY = 3_600_000_000, 86_400_000_000
COUNTED = {"n": agg.count(since="now")}


def window(size: int, **aggregates: Aggregation) -> OperatorStep:
    source = InputSpec((SourceIdentity("parquet", "s"),), ROWS)
    options: Any = (source, "at", Tumbling(size))
    return OperatorStep.of(WindowAggregate.build(("carrier",), {"rows": agg.count(), **aggregates}, *options))


def of(manifest: Manifest | None, *operators: OperatorStep) -> list[Pipeline]:
    """The steps as they begin behind this manifest."""
    stream: Any = SimpleNamespace(steps=[SimpleNamespace(code=None) for _ in operators])
    checked = _with_beginnings(CheckedStream(stream, (), Dataflow(operators)), manifest, manifest)
    return [each.pipeline for each in checked.dataflow.operators]


def begun_in(pipelines: list[Pipeline]) -> list[set[int]]:
    return [set(beginnings(each)) for each in pipelines]


def behind(epoch: int, hourly: Pipeline, daily: Pipeline) -> Manifest:
    return replace(a_manifest(pipeline=replace(daily, before=(hourly,))), epoch=Epoch(epoch))


def test_a_step_lends_no_beginning_to_another() -> None:
    hourly, daily = of(None, window(HOUR, **COUNTED), window(DAY))
    assert begun_in([hourly, daily]) == [{0}, set()]
    added = of(behind(41, hourly, daily), window(HOUR, **COUNTED), window(DAY, **COUNTED))
    assert begun_in(added) == [{0}, {41}]


def test_a_step_that_has_moved_or_got_other_windows_keeps_its_beginning() -> None:
    hourly, daily = of(None, window(HOUR, **COUNTED), window(DAY))
    newest = behind(41, hourly, daily)
    assert begun_in(of(newest, window(DAY), window(HOUR, **COUNTED))) == [set(), {0}]
    assert begun_in(of(newest, window(2 * HOUR, **COUNTED), window(DAY))) == [{0}, set()]


def test_of_two_windows_alike_each_has_its_own() -> None:
    one, two = of(None, window(HOUR, **COUNTED), window(HOUR))
    assert begun_in(of(behind(41, one, two), window(HOUR, **COUNTED), window(HOUR, **COUNTED))) == [{0}, {41}]
