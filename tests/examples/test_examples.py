"""Each file of `examples/`, run as Dagster runs it: loaded from its path, all of its assets materialized."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_ckpt import CheckpointStore, StreamHistory
from tests.examples.conftest import EXAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.dagster, pytest.mark.slow]

LINES_MAX = 60
Rows = list[tuple[Any, ...]]


def test_each_example_is_short_listed_in_the_readme_and_run_here() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    readme, tests = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    assert {name for name in names if f"]({name}.py)" in readme} == names
    assert {name for name in names if f'"{name}"' in tests} == names
    for name in names:
        text = (EXAMPLES / f"{name}.py").read_text()
        assert len([line for line in text.splitlines() if line]) <= LINES_MAX, name
        ours = [line for line in text.splitlines() if line.startswith("from dagster_ckpt")]
        public = ("from dagster_ckpt import ", "from dagster_ckpt.testing import ")
        assert all(line.startswith(public) for line in ours), "an example uses only what is public"


@dataclass
class Example:
    """An example at work; `instance` keeps its Dagster runs."""

    module: ModuleType
    folder: Path
    instance: dg.DagsterInstance

    def run(self) -> dg.ExecuteInProcessResult:
        """Materialize all of it."""
        definitions: dg.Definitions = self.module.defs
        return definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=self.instance)

    def stream(self, name: str) -> StreamHistory:
        return CheckpointStore((self.folder / self.module.__name__ / "checkpoints").as_uri()).stream(name)

    def rows(self, name: str, columns: Sequence[str] | None = None) -> Rows:
        return plain(self.stream(name).read(columns=columns))


@pytest.fixture
def example(request: pytest.FixtureRequest, folder: Path, instance: dg.DagsterInstance) -> Example:
    return Example(load(request.param), folder, instance)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def plain(table: pa.Table) -> Rows:
    """The rows, times in minutes."""
    columns = [
        [None if each is None else each // 60_000_000 for each in column.cast(pa.int64()).to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return sorted(zip(*columns, strict=True), key=repr)


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> Mapping[str, Any]:
    [materialized] = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in materialized.metadata.items()}


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True, ids=[name])


@of("running_aggregate")
def test_running_aggregate(example: Example) -> None:
    example.run()
    assert example.rows("delay_by_carrier") == [("AA", 1, 10.0), ("UA", 2, 15.0)]
    example.run()
    assert example.rows("delay_by_carrier") == [("AA", 2, 10.0), ("UA", 4, 15.0)]


@of("windows_with_late_rows")
def test_windows_with_late_rows(example: Example) -> None:
    example.run()
    assert example.rows("clicks_by_hour") == [("home", 0, 60, 2), ("home", 60, 120, 2)]
    assert plain(example.stream("clicks_by_hour").late_rows()) == [("home", 30)]


@of("deduplicate")
def test_deduplicate(example: Example) -> None:
    example.run()
    assert example.rows("events_once") == [("a", 0), ("b", 1), ("c", 2)]


@of("joins")
def test_joins(example: Example) -> None:
    example.run()
    assert example.rows("clicks_of_ads") == [("boots", 0, 3), ("kayak", 7, None), ("tent", 5, None)]


@of("process_function")
def test_process_function(example: Example) -> None:
    example.run()
    assert example.rows("unpaid_orders") == [("b", 31), ("c", 32)]


@pytest.mark.reads_streams
@of("stream_reads_stream")
def test_stream_reads_stream(example: Example) -> None:
    example.run()
    assert example.rows("late_carriers") == [("AA", 40.0)]
    example.run()
    assert example.rows("late_carriers") == [("UA", 30.0)]


@pytest.mark.reads_streams
@of("changes_of_a_database")
def test_changes_of_a_database(example: Example) -> None:
    example.run()
    assert example.rows("customers", ["id", "version", "name"]) == [(1, 14, "Ada L."), (3, 12, "Cyd")]
    assert example.rows("names", ["name", "customers"]) == [("Ada L.", 1), ("Cyd", 1)]


@of("time_travel")
def test_time_travel(example: Example) -> None:
    shown = metadata(example.run(), "then_and_now")
    assert shown["then"] == [{"item": "tent", "quantity": 5}]
    assert shown["now"] == [{"item": "tent", "quantity": 3}]
    assert sorted((row["quantity"], row["_change_type"]) for row in shown["changes"]) == [
        (3, "update_postimage"),
        (5, "update_preimage"),
    ]


@of("fork_and_rollback")
def test_fork_and_rollback(example: Example) -> None:
    shown = metadata(example.run(), "what_if")
    assert shown["forked"] == [{"item": "tent", "quantity": 3}]
    assert example.rows("stock") == [("tent", 5)]
    again = metadata(example.run(), "what_if")
    assert again["forked"] == [{"item": "tent", "quantity": 6}], "the run worked what the rollback took back, and more"


@of("checks_of_a_stream")
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_checks_of_a_stream(example: Example) -> None:
    assert metadata(example.run(), "stock_report") == {"quantity": 5, "epoch/stock": 2}
    epoch = example.stream("stock").latest().epoch
    job = example.module.defs.resolve_job_def("stock_checks_job")
    [evaluation] = job.execute_in_process(instance=example.instance).get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed) == ("some_items_are_there", True)
    assert evaluation.metadata["epoch"].value == epoch
    everything = example.module.defs.resolve_implicit_global_asset_job_def()
    again = everything.execute_in_process(instance=example.instance, raise_on_error=False)
    assert not again.asset_materializations_for_node("stock_report"), "fewer than none: the report is held back"
    checks = {each.check_name: each.passed for each in again.get_asset_check_evaluations()}
    assert (checks["none_is_negative"], checks["some_items_are_there"]) == (False, True)


@of("code_location")
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_code_location(example: Example) -> None:
    assert metadata(example.run(), "best_shop") == {"shop": "S", "total": 4, "epoch/sales_by_shop": 2}


def test_testing_an_asset() -> None:
    load("testing_an_asset").test_flights_that_leave_early_count_as_in_time()
