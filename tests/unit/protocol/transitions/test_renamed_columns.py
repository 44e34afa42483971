"""Which columns the code has under new names."""

from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Ancestor, Manifest, Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.renamed_columns import (
    check_renames,
    former_names,
    named_as,
    names_in_file,
    own_names,
    with_former_names,
)
from tests.worlds.manifests import PIPELINE, a_manifest

TEXT = pa.string()
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


def test_a_rebuilt_stream_has_columns_of_its_own() -> None:
    was = shown(step("delay", "n", delay="minutes"))
    now = shown(step("minutes", "n", "delay"))  # the last one is new, and had no other name
    assert named_as(was, now).pipeline.output.names == ["delay", "n"], "in a stream that kept its state"
    swapped = Ancestor(StreamUuid("2" * 32), "counts/~rebuild-1", Epoch(9), swapped=True)
    rebuilt = replace(now, ancestors=(swapped,))
    assert named_as(was, rebuilt) == was
    renamed = replace(rebuilt, pipeline=step("minutes", "n", "delay", n="count"))
    assert named_as(rebuilt, renamed).pipeline.output.names == ["minutes", "count", "delay"], "renamed since"


def test_a_place_in_a_query_is_another_column_once_its_aggregates_have_changed() -> None:
    def query(function: str, name: str) -> Pipeline:
        spelled = [{"name": "a0", "function": function, "column": "v"}]
        return replace(step("k0", "a0", k0="carrier", a0=name), parameters={"aggregates": spelled})

    before = shown(query("sum", "total"))
    assert named_as(before, shown(query("sum", "all"))).pipeline.output.names == ["carrier", "all"]
    assert named_as(before, shown(query("max", "most"))) == before


def appended(*names: str, type_: pa.DataType = TEXT) -> Pipeline:
    """An append-only stream with these columns."""
    table = pa.schema([(name, type_) for name in names])
    inputs = (replace(PIPELINE.inputs[0], schema=table),)
    return replace(
        PIPELINE, operator="append", parameters={}, inputs=inputs, keys=(), tables=(), output=table, appends=True
    )


def after(was: Pipeline, now: Pipeline, renames: dict[str, str]) -> Pipeline:
    return replace(now, output=with_former_names("flights", was, now, renames))


def test_files_have_a_column_under_the_names_that_it_had() -> None:
    first = appended("carrier", "n")
    second = after(first, appended("airline", "n"), RENAMED)
    assert former_names(second.output) == {"airline": ("carrier",)}
    assert former_names(after(second, appended("n", "airline"), {}).output) == {"airline": ("carrier",)}, "remembered"
    third = after(second, appended("line", "n"), {"airline": "line"})
    assert former_names(third.output) == {"line": ("airline", "carrier")}
    for columns, name in ((("carrier", "n"), "carrier"), (("n", "airline"), "airline"), (("n", "line"), "line")):
        assert names_in_file(columns, former_names(third.output)) == {"line": name, "n": "n"}
    assert named_as(shown(first), shown(third)).pipeline.output.names == ["line", "n"]
    assert former_names(after(third, appended("n"), {}).output) == {}, "dropped"


def test_no_new_column_has_a_name_that_older_files_have_for_another() -> None:
    renamed = after(appended("carrier"), appended("airline"), RENAMED)
    with pytest.raises(InvalidPipelineError, match=r"older files of the table have 'airline'.*flights, column=carrier"):
        after(renamed, appended("airline", "carrier"), {})


def test_a_renamed_column_of_files_keeps_the_rule_for_types() -> None:
    was = appended("carrier", type_=pa.int32())
    wider, other = (after(was, appended("airline", type_=type_), RENAMED) for type_ in (pa.int64(), TEXT))
    assert breaking_changes(was, wider) == ()
    assert breaking_changes(was, other) == ("column airline was int32, now it is string",)


def test_the_manifest_remembers_former_names() -> None:
    renamed = after(appended("carrier"), appended("airline"), RENAMED)
    again = decode_manifest(encode_manifest(a_manifest(pipeline=renamed)), "manifest")
    assert former_names(again.pipeline.output) == {"airline": ("carrier",)}
