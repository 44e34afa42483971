"""`docs/reference/options.md` has every option, with the type and the default that the code has."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_overloads

import pytest

import dagster_ckpt
from dagster_ckpt import (
    CheckpointCoordinatorResource,
    LsmStateBackendResource,
    Recovery,
    SparkReader,
    Stream,
    agg,
    build_recovery_sensor,
    build_streaming_definitions,
    changes_from,
    deliver,
    epoch_checks,
    explain,
    hopping,
    late_rows,
    over,
    register_spark_reader,
    session,
    streaming_asset,
    streaming_sql,
    tumbling,
)
from dagster_ckpt.destinations import DeltaLake, Iceberg, Kafka, ParquetFolder, Postgres
from dagster_ckpt.integration import dagster_names
from dagster_ckpt.integration.asset_options import REFUSED, SharedOptions
from dagster_ckpt.integration.declared import parameters
from dagster_ckpt.integration.declared.run_config import RESERVED, config_class
from dagster_ckpt.integration.reading import loaded_epochs
from dagster_ckpt.integration.sql import properties
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark import batch_source
from dagster_ckpt.storage.stores.kinds import SHARED
from dagster_ckpt.storage.stores.over_fsspec.places import AZURE_OPTIONS, GS_OPTIONS, S3_OPTIONS, WEBHDFS_OPTIONS
from dagster_ckpt.testing import ProcessKit, run_batches

PAGE = (Path(__file__).parents[2] / "docs/reference/options.md").read_text()
Option = tuple[str, str, str]
"""Name, type and default, as the page has them."""

NOT_THE_USERS = {"self", "clock"}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "streaming_asset": get_overloads(streaming_asset)[-1],
    "streaming_sql": streaming_sql,
    "deliver": deliver,
    "build_streaming_definitions": build_streaming_definitions,
    "build_recovery_sensor": build_recovery_sensor,
    "epoch_checks": epoch_checks,
    "late_rows": late_rows,
    "changes_from": changes_from,
    "Stream.select": Stream.select,
    "Stream.with_column": Stream.with_column,
    "Stream.with_columns": Stream.with_columns,
    "Stream.transform": Stream.transform,
    "Stream.with_watermark": Stream.with_watermark,
    "Stream.key_by": Stream.key_by,
    "Stream.window": Stream.window,
    "tumbling": tumbling,
    "hopping": hopping,
    "session": session,
    "Stream.deduplicate": Stream.deduplicate,
    "Stream.top": Stream.top,
    "Stream.over": Stream.over,
    "over.sum": over.sum,
    "over.lag": over.lag,
    "Stream.join": Stream.join,
    "Stream.interval_join": Stream.interval_join,
    "Stream.instant_join": Stream.instant_join,
    "Stream.window_join": Stream.window_join,
    "Stream.process": Stream.process,
    "agg.collect": agg.collect,
    "agg.percentile": agg.percentile,
    "agg.user_defined": agg.user_defined,
    "agg.corr": agg.corr,
    "agg.approx_count_distinct": agg.approx_count_distinct,
    "agg.approx_quantile": agg.approx_quantile,
    "SparkReader": SparkReader.__init__,
    "register_spark_reader": register_spark_reader,
    "run_batches": run_batches,
    "explain": explain,
    "ProcessKit": ProcessKit.__init__,
}
CLASSES: Mapping[str, type] = {
    "Recovery": Recovery,
    "CheckpointCoordinatorResource": CheckpointCoordinatorResource,
    "LsmStateBackendResource": LsmStateBackendResource,
    "DeltaLake": DeltaLake,
    "Iceberg": Iceberg,
    "Kafka": Kafka,
    "ParquetFolder": ParquetFolder,
    "Postgres": Postgres,
}


def tables() -> dict[str, list[list[str]]]:
    """The cells of each table of the page, by its heading."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        rows = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
        found[section.splitlines()[0].replace("`", "")] = cells[2:]
    return found


TABLES = tables()


def on_page(heading: str) -> list[Option]:
    return [(plain(name), plain(kind), plain(default)) for name, kind, default, _ in TABLES[heading]]


def plain(cell: str) -> str:
    return cell.replace("\\|", "|").strip("`")


def of_function(function: Callable[..., Any]) -> Iterator[Option]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    given = tree.args
    by_position = [*given.posonlyargs, *given.args]
    required: list[ast.expr | None] = [None] * (len(by_position) - len(given.defaults))
    named = [*zip(by_position, [*required, *given.defaults], strict=True)]
    if given.vararg is not None:
        named.append((ast.arg(f"*{given.vararg.arg}", given.vararg.annotation), None))
    for argument, default in [*named, *zip(given.kwonlyargs, given.kw_defaults, strict=True)]:
        if argument.arg in NOT_THE_USERS:
            continue
        kind = text_of(argument.annotation)
        if kind != "None":  # the function that a decorator with options is not called with
            yield argument.arg, kind, "required" if default is None else text_of(default)


def of_class(kind: type) -> Iterator[Option]:
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    fields = getattr(kind, "model_fields", {})
    for each in tree.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            name, field = each.target.id, fields.get(each.target.id)
            default = default_of_dataclass(each.value) if field is None else default_of(field)
            yield name, re.sub(r"dg\.ResourceDependency\[(.*)\]", r"\1", text_of(each.annotation)), default


def default_of_dataclass(value: ast.expr | None) -> str:
    """The default of a dataclass's field; that of `field(default_factory=dict)` is `{}`."""
    if isinstance(value, ast.Call) and text_of(value.func) == "field":
        factories = [text_of(each.value) for each in value.keywords if each.arg == "default_factory"]
        return {"dict": "{}"}[factories[0]] if factories else "required"
    return "required" if value is None else text_of(value)


def default_of(field: Any) -> str:
    """The default of a field of Pydantic's."""
    value = field.get_default(call_default_factory=True)
    return "required" if field.is_required() else f'"{value}"' if isinstance(value, str) else str(value)


def text_of(node: ast.expr | None) -> str:
    """As it stands in the code, in the words of the page."""
    assert node is not None
    text = ast.unparse(node).replace("'", '"').replace("AbstractSet[", "Set[")
    if isinstance(node, ast.Constant) and re.search("Stream|Column|DataFrame", text):
        text = text.strip('"')  # a type that is only imported for type checkers
    literal = re.fullmatch(r"Literal\[(.*)\]", text)
    return text if literal is None else literal[1].replace(", ", " | ")


@pytest.mark.parametrize("heading", FUNCTIONS)
def test_the_options_of_a_function_are_on_the_page(heading: str) -> None:
    assert on_page(heading) == list(of_function(FUNCTIONS[heading]))


@pytest.mark.parametrize("heading", CLASSES)
def test_the_fields_of_a_class_are_on_the_page(heading: str) -> None:
    assert on_page(heading) == list(of_class(CLASSES[heading]))


def test_every_function_with_options_has_a_table() -> None:
    """The other public names have none, or are read in the API reference alone."""
    without = {"CheckpointCoordinator", "CheckpointStore", "CoordinatorOptions", "EpochIOManager", "KeyedState"}
    without |= {"ListState", "ProcessContext", "ProcessFunction", "Snapshot", "Stream", "StreamHistory", "ValueState"}
    without |= {"agg", "over", "source", *(name for name in dagster_ckpt.__all__ if name.endswith("Error"))}
    without |= {
        "DeliveryComponent",
        "StreamingComponent",
        "StreamingSqlComponent",
    }  # which have a test of their attributes
    assert set(dagster_ckpt.__all__) - without == {*FUNCTIONS, *CLASSES} - {
        "DeltaLake",
        "Iceberg",
        "Kafka",
        "ParquetFolder",
        "Postgres",
    } - {
        name
        for name in FUNCTIONS
        if name.startswith(("Stream.", "agg.", "over.")) or name in {"run_batches", "ProcessKit"}
    }
    steps = {name for name, step in vars(Stream).items() if not name.startswith("_") and inspect.isfunction(step)}
    sets = {"distinct", "union", "intersect", "intersect_all", "subtract", "except_all"}
    assert steps - {"aggregate", "with_mirror", "to_df", "where", *sets} == {
        name.removeprefix("Stream.") for name in FUNCTIONS if name.startswith("Stream.")
    }


@pytest.mark.parametrize(
    "component",
    [dagster_ckpt.StreamingComponent, dagster_ckpt.StreamingSqlComponent, dagster_ckpt.DeliveryComponent],
)
def test_the_attributes_of_a_component_are_on_the_page(component: Any) -> None:
    shown = [(plain(name), plain(default)) for name, default, _ in TABLES[component.__name__]]
    fields = component.model_fields
    assert shown == [(name, default_of(field)) for name, field in fields.items()]


def test_the_properties_of_a_table_in_sql_are_on_the_page() -> None:
    shown = {plain(name): plain(option) for name, option, _ in TABLES["TBLPROPERTIES"]}
    expected = {f"dagster_ckpt.{name}": option for name, (option, _) in properties.OPTIONS.items()}
    expected |= {f"dagster_ckpt.recovery.{field.name}": "recovery" for field in dataclasses.fields(Recovery)}
    assert shown == {**expected, "dagster_ckpt.reads": ""}


def test_the_options_for_all_tables_in_sql_are_on_the_page() -> None:
    section = PAGE.partition("### `streaming_sql`")[2].partition("Further options")[2].partition("### ")[0]
    assert re.findall(r"`(\w+)`", section.partition(": ")[2]) == list(SharedOptions.__annotations__)


def test_the_run_config_is_on_the_page() -> None:
    fields = config_class(None, Mode.AVAILABLE_NOW, "any").model_fields
    assert tuple(fields) == RESERVED
    shown = {name: (kind, default) for name, kind, default in on_page("Run config")}
    assert shown == {
        "mode": ('"available_now" | "continuous"', "the asset's"),
        "run_for": ("str | None", str(fields["run_for"].default)),
        "from_epoch": ("int | None", str(fields["from_epoch"].default)),
        "take_over": ("bool", str(fields["take_over"].default)),
        "restart_steps": ("bool", str(fields["restart_steps"].default)),
        "rebuild": ("bool", str(fields["rebuild"].default)),
        "rebuild_pace": ("float | None", str(fields["rebuild_pace"].default)),
    }


def test_the_run_tags_are_on_the_page() -> None:
    tags = {value for name, value in vars(dagster_names).items() if name.endswith("_TAG")}
    assert {plain(name) for name, _ in TABLES["Run tags"]} == tags


def test_the_metadata_of_an_input_is_on_the_page() -> None:
    read_by_name = set(re.findall(r'plain_value\(.*?, "(\w+)"\)', inspect.getsource(loaded_epochs)))
    shown = {name for name, _, _ in on_page("Inputs of an asset")}
    assert shown == {*read_by_name, loaded_epochs.CONSISTENCY, parameters.STATIC}


def test_the_options_that_dagster_has_and_a_stream_refuses_are_on_the_page() -> None:
    refused = [plain(name) for name, _ in TABLES["Options of @dg.asset that a stream refuses"]]
    assert refused == list(REFUSED)


def test_the_options_of_the_spark_format_are_on_the_page() -> None:
    assert [plain(name) for name, _, _, _ in TABLES["The Spark format dagster_ckpt"]] == list(batch_source._OPTIONS)


def test_the_options_of_a_store_are_on_the_page() -> None:
    of_all = sorted([*S3_OPTIONS, SHARED])
    known = {"": of_all, " of gs:": GS_OPTIONS, " of abfs:": AZURE_OPTIONS, " of webhdfs:": WEBHDFS_OPTIONS}
    for scheme, options in known.items():
        assert sorted(plain(name) for name, _ in TABLES[f"storage_options{scheme}"]) == list(options)


def test_the_environment_variables_of_ours_are_on_the_page() -> None:
    package = Path(dagster_ckpt.__file__).parent
    code = "\n".join(file.read_text() for file in package.rglob("*.py"))
    ours = set(
        re.findall(r"\b(?:DAGSTER_CKPT_[A-Z_]+|SPARK_HOME|PYSPARK_[A-Z_]+|SPARK_SUBMIT_OPTS|DAGSTER_HOME)\b", code)
    )
    shown = {plain(name) for name, _ in TABLES["Environment variables"]}
    assert ours <= shown
