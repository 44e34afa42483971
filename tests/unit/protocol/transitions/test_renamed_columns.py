"""Which columns the code has under new names."""

from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline
from dagster_ckpt.protocol.transitions.renamed_columns import check_renames, named_as, own_names
from tests.worlds.manifests import PIPELINE, a_manifest

RENAMED = {"carrier": "airline"}


def step(*names: str, **shown: str) -> Pipeline:
    """A step with these columns; `shown` are other names that some of them have in the table."""
    own = pa.schema([(name, pa.string()) for name in names])
    output = pa.schema([(shown.get(name, name), pa.string()) for name in names])
    columns = tuple((name, shown.get(name, name)) for name in names) if shown else ()
    return replace(
        PIPELINE, inputs=(replace(PIPELINE.inputs[0], schema=own),), output=output, columns=columns, keys=names[:1]
    )


@pytest.mark.parametrize(
    ("was", "now", "own"),
    [
        (step("carrier", "n"), step("airline", "n"), {"airline": "carrier"}),
        (step("carrier", "n"), step("carrier", "n"), {}),
        (step("carrier", "n"), step("carrier", "airline"), {}),  # not instead of the old name, but besides it
        (step("carrier", "airline"), step("airline", "n"), {}),  # the step had both: one of them was dropped
        (step("carrier", "n", carrier="airline"), step("airline", "n"), {"airline": "carrier"}),  # it remembers
        (step("code", "n", code="carrier"), step("airline", "n"), {"airline": "code"}),  # renamed once more
        (step("airline", "n", airline="carrier"), step("airline", "n"), {}),  # and back
        (step("carrier", "n", carrier="airline"), step("carrier", "n"), {}),  # the code from before
        (replace(step("carrier"), operator="over"), step("airline"), {}),
        (step("carrier"), step("k0", k0="airline"), {}),  # a query's columns are known by their places
    ],
)
def test_names_in_the_code_and_in_the_state(was: Pipeline, now: Pipeline, own: dict[str, str]) -> None:
    assert own_names(was, now, RENAMED) == own


def test_a_new_column_does_not_take_the_name_that_another_has_in_the_state() -> None:
    was = step("carrier", "n", carrier="airline")
    assert own_names(was, step("airline", "n", "carrier"), {}) == {"airline": "carrier", "carrier": "carrier (2)"}


def test_exchanged_names_are_remembered() -> None:
    was = step("a", "b", a="b", b="a")
    assert own_names(was, step("a", "b"), {}) == {"a": "b", "b": "a"}


@pytest.mark.parametrize(
    ("stored", "renames"),
    [
        (None, {"carrier": "airline"}),  # a new stream
        (step("carrier", "n"), {"carrier": "airline"}),
        (step("airline", "n"), {"carrier": "airline"}),  # done
        (step("carrier", "n", carrier="airline"), {"carrier": "airline"}),
        (step("carrier", "airline"), {"carrier": "airline"}),  # and the old one was dropped
    ],
)
def test_renames_that_can_be_meant(stored: Pipeline | None, renames: dict[str, str]) -> None:
    check_renames("flights", stored, step("airline", "n"), renames)


@pytest.mark.parametrize(
    ("stored", "declared", "says"),
    [
        (None, step("carrier"), r"code's table has no column 'airline'.*asset=flights, columns=\['carrier'\]"),
        (step("code"), step("airline"), r"stream's table has no column 'carrier'.*asset=flights, columns=\['code'\]"),
        (step("carrier"), step("carrier", "airline"), "the code's table still has 'carrier' besides 'airline'"),
    ],
)
def test_renames_that_cannot_be_meant(stored: Pipeline | None, declared: Pipeline, says: str) -> None:
    with pytest.raises(InvalidPipelineError, match=says):
        check_renames("flights", stored, declared, RENAMED)


def shown(pipeline: Pipeline) -> Manifest:
    return a_manifest(pipeline=pipeline)


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        (step("carrier", "n"), step("carrier", "n", carrier="airline"), ["airline", "n"]),
        (step("carrier", "n", carrier="airline"), step("carrier", "n"), ["carrier", "n"]),  # rolled back, then forward
        (step("carrier", "n", carrier="code"), step("carrier", "n", carrier="airline"), ["airline", "n"]),
        (step("carrier", "n"), step("carrier", "x", carrier="airline"), ["airline", "n"]),
        (step("code", "n", code="airline"), step("airline", "n"), ["airline", "n"]),  # rebuilt since
        (step("a", "b"), step("a", "c", a="b", c="c"), ["a", "b"]),  # a name that is another column's now
        (replace(step("carrier"), operator="over"), step("carrier", carrier="airline"), ["carrier"]),
    ],
)
def test_an_epoch_before_is_read_under_the_newest_names(was: Pipeline, now: Pipeline, names: list[str]) -> None:
    named = named_as(shown(was), shown(now)).pipeline
    assert named.output.names == names
    assert named.own == was.own


def test_a_place_in_a_query_is_another_column_once_its_aggregates_have_changed() -> None:
    def query(function: str, name: str) -> Pipeline:
        spelled = [{"name": "a0", "function": function, "column": "v"}]
        return replace(step("k0", "a0", k0="carrier", a0=name), parameters={"aggregates": spelled})

    before = shown(query("sum", "total"))
    assert named_as(before, shown(query("sum", "all"))).pipeline.output.names == ["carrier", "all"]
    assert named_as(before, shown(query("max", "most"))) == before
