"""Which columns the code has under new names."""

from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.renamed_columns import check_renames, own_names
from tests.worlds.manifests import PIPELINE

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
