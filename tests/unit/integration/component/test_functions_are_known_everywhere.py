"""Python, SQL, YAML, the reference and the property test know the functions of the registry, and no others."""

import inspect
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.functions import AggregateAttributes, build_aggregation
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates import spec
from dagster_ckpt.operators.aggregates.aggregation import NOW, Aggregation
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS, plan, plan_updating, plan_with_tables, spark_function
from dagster_ckpt.operators.aggregates.side_tables import side_tables_of
from dagster_ckpt.protocol.transitions.compatibility import BESIDE, BESIDE_WHERE_RETRACTED
from dagster_ckpt.runtime.plans import aggregates as sql
from tests.worlds.sample_aggregates import samples

SCHEMA = pa.schema(
    [("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string()), ("at", pa.timestamp("us"))]
)
TYPES = {field.name: field.type for field in SCHEMA}
COLUMNS = {
    spec.NUMBERS: "f",
    spec.INTEGERS: "i",
    spec.BOOLEANS: "b",
    spec.ORDERED: "s",
    spec.COMPARABLE: "s",
    spec.ANYTHING: "s",
}
SAMPLES = samples(COLUMNS, other="i")


def test_python_has_them_all() -> None:
    functions = {name for name, found in vars(agg).items() if inspect.isfunction(found)}
    assert functions == set(FUNCTIONS)
    for name, spec_ in FUNCTIONS.items():
        assert getattr(agg, name) is spec_.call
        assert inspect.getdoc(spec_.call), name


def test_yaml_has_all_but_those_of_the_users_code() -> None:
    of_columns = {name for name, each in FUNCTIONS.items() if each.is_of_column}
    options = {option for name in of_columns for option in FUNCTIONS[name].options} - {"since"}
    assert set(AggregateAttributes.model_fields) == of_columns | options
    assert FUNCTIONS.keys() - of_columns == {"user_defined"}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if FUNCTIONS[name].is_of_column])
def test_yaml_makes_what_python_makes(name: str) -> None:
    one = SAMPLES[name]
    given: dict[str, Any] = {option: getattr(one, option) for option in FUNCTIONS[name].options}
    given = {option: value for option, value in given.items() if value is not None}
    assert build_aggregation("made", {name: one.column, **given}) == one


def test_the_reference_has_them_all() -> None:
    page, source = "reference/api/aggregates", [""]
    conf = runpy.run_path(str(Path(__file__).parents[4] / "docs/conf.py"))
    conf["_list_aggregates"](None, page, source)
    listed = [line.rpartition(".")[2] for line in source[0].splitlines() if "autofunction" in line]
    assert listed == list(FUNCTIONS)


def test_sql_has_code_for_no_class_that_is_no_function() -> None:
    assert {name for each in FUNCTIONS.values() for name in (*each.spark, *each.spark_distinct)} >= sql.OWN


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if FUNCTIONS[name].spark or FUNCTIONS[name].spark_distinct]
)
def test_sql_finds_a_function_by_the_classes_of_spark_that_it_is_for(name: str) -> None:
    each = FUNCTIONS[name]
    of_booleans = each.takes is spec.BOOLEANS
    for distinct, classes in ((False, each.spark), (True, each.spark_distinct)):
        found = {spark_function(one, of_booleans=of_booleans, distinct=distinct) for one in classes}
        assert found <= {each}
    kept = {spark_function(one, of_booleans=of_booleans, distinct=True) for one in each.spark}
    assert each.idempotent == (each in kept)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_aggregate_is_stored_by_the_name_of_its_function(name: str) -> None:
    assert SAMPLES[name].function == name
    assert Aggregation.of(SAMPLES[name].spelling()) == SAMPLES[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_result_is_of_one_type_wherever_its_state_is(name: str) -> None:
    one = SAMPLES[name]
    fields = {plan_with_tables("x", one, TYPES, "at").field}
    if name == "user_defined":
        with pytest.raises(InvalidPipelineError, match="leave expire_after out"):
            plan("x", one, TYPES, "at")
    else:
        fields.add(plan("x", one, TYPES, "at").field)
    if not FUNCTIONS[name].irreversible:
        fields.add(plan_updating("x", one, TYPES, "at").field)
    assert len(fields) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_manifest_s_reader_knows_which_have_a_table_beside(name: str) -> None:
    def has_table(accumulators: Any) -> bool:
        return bool(side_tables_of(accumulators, (), SCHEMA))

    one = SAMPLES[name]
    assert has_table(plan_with_tables("x", one, TYPES, "at").accumulators) == (name in BESIDE)
    assert FUNCTIONS.keys() >= BESIDE_WHERE_RETRACTED
    if not FUNCTIONS[name].irreversible:
        assert has_table(plan_updating("x", one, TYPES, "at").accumulators) == (name in BESIDE_WHERE_RETRACTED)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_but_the_users_code_begin_later(name: str) -> None:
    assert FUNCTIONS[name].begins_later == (name != "user_defined")
    if FUNCTIONS[name].begins_later:
        assert samples(COLUMNS, other="i", since=NOW)[name].since == NOW


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_it_keeps_has_words(name: str) -> None:
    for planner in (plan_with_tables, plan_updating):
        for each in planner("x", SAMPLES[name], TYPES, "at").accumulators:
            assert each.keeps.words
