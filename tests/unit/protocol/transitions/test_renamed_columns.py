"""Which columns the code has under new names."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, StreamUuid, Version
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Ancestor, EpochRange, Manifest, Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.renamed_columns import (
    check_renames,
    column_ids,
    own_names,
    with_column_ids,
    with_names_of,
)
from dagster_ckpt.protocol.transitions.swap import as_ancestor, handover
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
        (step("carrier", "airline"), step("airline", "n"), "a column 'airline' of its own, which is dropped"),
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
    named = with_names_of(shown(was), shown(now)).pipeline
    assert named.output.names == names
    assert named.own == was.own


def test_a_rebuilt_stream_has_columns_of_its_own() -> None:
    was = shown(step("delay", "n", delay="minutes"))
    now = shown(step("minutes", "n", "delay"))  # the last one is new, and had no other name
    assert with_names_of(was, now).pipeline.output.names == ["delay", "n"], "in a stream that kept its state"
    swapped = Ancestor(StreamUuid("2" * 32), "counts/~rebuild-1", Epoch(9), swapped=True)  # as releases wrote it
    rebuilt = replace(now, ancestors=(swapped,))
    assert with_names_of(was, rebuilt) == was
    renamed = replace(rebuilt, pipeline=step("minutes", "n", "delay", n="count"))
    assert with_names_of(rebuilt, renamed).pipeline.output.names == ["minutes", "count", "delay"], "renamed since"


def query(function: str, **names: str) -> Pipeline:
    """A query's aggregate by carrier, its columns known by their places."""
    spelled = [{"name": "a0", "function": function, "column": "v"}]
    return replace(step("k0", "a0", **names), parameters={"aggregates": spelled})


def swap_after(before: Manifest, rebuilt: Pipeline, epoch: int) -> Manifest:
    """The stream as it is once a rebuilt one has taken over in this epoch."""
    parent = replace(before, version=Version(epoch - 1))
    number = len(before.ancestors) + 1
    beside = replace(before, uuid=StreamUuid(f"{number}" * 32), stream=f"counts/~rebuild-{number}", pipeline=rebuilt)
    added = replace(as_ancestor(beside), handover=handover(parent, beside))
    after = replace(parent, version=Version(epoch), epoch=Epoch(epoch), pipeline=rebuilt)
    return replace(after, ancestors=(*before.ancestors, added))


def later(manifest: Manifest, pipeline: Pipeline) -> Manifest:
    return replace(manifest, epoch=Epoch(manifest.epoch + 1), pipeline=pipeline)


@pytest.mark.parametrize(
    ("was", "end", "rebuilt", "now", "names"),
    [
        (step("k", "n"), step("k", "n"), step("k", "n"), step("k", "n", k="key"), ["key", "n"]),
        (step("k", "n"), step("k", "n", k="id"), step("id", "n"), step("id", "n", id="key"), ["key", "n"]),
        (step("k", "n"), step("k", "n", k="id"), step("id", "n"), step("id", "n"), ["id", "n"]),
        (step("k", "n", k="id"), step("k", "n", k="id"), step("k", "id"), step("k", "id", k="x"), ["id", "n"]),
        (step("k", "n"), step("k", "n"), step("k", "m"), step("k", "m", m="n"), ["k", "n"]),
        (step("k", "n"), step("k", "n"), step("k", "m"), step("k", "m", k="n", m="m"), ["k", "n"]),  # taken: unchanged
        (step("k", "n"), step("k", "n"), step("n", "k"), step("n", "k", n="k", k="n"), ["n", "k"]),
        (step("k", "n"), step("k", "n"), query("sum", k0="k", a0="n"), query("sum", k0="id", a0="m"), ["id", "m"]),
        (step("k", "n"), step("k", "n"), query("sum", k0="k", a0="n"), query("max", k0="id", a0="m"), ["id", "n"]),
        (replace(step("k"), operator="over"), step("k"), step("k"), step("k", k="key"), ["k"]),
    ],
)
def test_over_a_swap_a_column_is_known_by_its_name_in_the_table(
    was: Pipeline, end: Pipeline, rebuilt: Pipeline, now: Pipeline, names: list[str]
) -> None:
    before = shown(was)
    swap = swap_after(later(before, end), rebuilt, 10)
    named = with_names_of(before, later(swap, now)).pipeline
    assert named.output.names == names
    assert named.own == was.own


def test_a_rename_is_followed_over_several_swaps() -> None:
    before = shown(step("a", "n"))
    first = swap_after(before, step("a", "n"), 10)
    second = swap_after(later(first, step("a", "n", a="b")), step("b", "n"), 20)
    newest = later(second, step("b", "n", b="c"))
    names = [with_names_of(each, newest).pipeline.output.names for each in (before, first, second)]
    assert names == [["c", "n"]] * 3
    dropped = swap_after(later(first, step("a", "n", a="b")), step("n"), 20)
    back = later(dropped, step("n", "a", n="b", a="a"))
    assert with_names_of(before, back) == before, "the table's `b` is another one by now"


def test_a_swap_that_a_rollback_left_behind_is_not_between() -> None:
    before = shown(step("k", "n"))
    swap = swap_after(before, step("n", "k", n="k", k="n"), 10)
    back = replace(swap, pipeline=before.pipeline, epoch=before.epoch, abandoned=(EpochRange(Epoch(10), Epoch(10)),))
    newest = later(back, step("k", "n", k="key"))
    assert with_names_of(before, newest).pipeline.output.names == ["key", "n"]
    assert with_names_of(back, newest).pipeline.output.names == ["key", "n"]
    assert with_names_of(swap, newest) == swap, "its state was another one"
    again = swap_after(newest, step("key", "n"), 20)
    assert with_names_of(before, again).pipeline.output.names == ["key", "n"]
    assert with_names_of(before, later(again, step("key", "n", key="id"))).pipeline.output.names == ["id", "n"]


def test_epochs_that_changed_steps_abandoned_keep_their_names() -> None:
    """The state went on, so the swap holds, although its epoch is abandoned too."""
    before = replace(shown(step("k", "n")), epoch=Epoch(5))
    swap = swap_after(before, step("n", "k", n="k", k="n"), 10)
    restarted = replace(swap, epoch=Epoch(12), abandoned=(EpochRange(Epoch(1), Epoch(11)),))
    newest = later(restarted, step("n", "k", n="key", k="n"))
    assert with_names_of(before, newest) == before
    assert with_names_of(restarted, newest).pipeline.output.names == ["key", "n"]


def test_the_manifest_remembers_what_took_over() -> None:
    swap = swap_after(shown(step("k", "n", k="id")), query("sum", k0="id", a0="n"), 10)
    again = decode_manifest(encode_manifest(swap), "manifest")
    assert again == swap
    assert again.ancestors[-1].handover == swap.ancestors[-1].handover is not None


def test_a_place_in_a_query_is_another_column_once_its_aggregates_have_changed() -> None:
    before = shown(query("sum", k0="carrier", a0="total"))
    assert with_names_of(before, shown(query("sum", k0="carrier", a0="all"))).pipeline.output.names == [
        "carrier",
        "all",
    ]
    assert with_names_of(before, shown(query("max", k0="carrier", a0="most"))) == before


def appended(*names: str, type_: pa.DataType = TEXT) -> Pipeline:
    """An append-only stream with these columns."""
    table = pa.schema([(name, type_) for name in names])
    inputs = (replace(PIPELINE.inputs[0], schema=table),)
    return replace(
        PIPELINE, operator="append", parameters={}, inputs=inputs, keys=(), tables=(), output=table, appends=True
    )


def after(was: Pipeline, now: Pipeline, renames: dict[str, str]) -> Pipeline:
    return replace(now, output=with_column_ids(was, now, renames))


def test_files_have_a_column_under_the_name_that_it_had_first() -> None:
    first = appended("carrier", "n")
    second = after(first, appended("airline", "n"), RENAMED)
    assert column_ids(second.output) == {"airline": "carrier", "n": "n"}
    assert column_ids(after(second, appended("n", "airline"), {}).output) == {"airline": "carrier", "n": "n"}, "kept"
    third = after(second, appended("line", "n"), {"airline": "line"})
    assert column_ids(third.output) == {"line": "carrier", "n": "n"}
    for earlier in (first, second):
        assert with_names_of(shown(earlier), shown(third)).pipeline.output.names == ["line", "n"]
    assert column_ids(after(third, appended("n"), {}).output) == {"n": "n"}, "dropped"
    back = after(third, appended("carrier", "n"), {"line": "carrier"})
    assert back.output.field("carrier").metadata is None, "its name and its id are one again"


def test_a_new_column_with_the_name_that_another_has_in_files_gets_another_there() -> None:
    renamed = after(appended("carrier"), appended("airline"), RENAMED)
    more = after(renamed, appended("airline", "carrier"), {})
    assert column_ids(more.output) == {"airline": "carrier", "carrier": "carrier (2)"}
    again = after(more, appended("line", "carrier"), {"airline": "line"})
    assert column_ids(again.output) == {"line": "carrier", "carrier": "carrier (2)"}
    assert with_names_of(shown(renamed), shown(again)).pipeline.output.names == ["line"]


NAMES = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)


@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from("abcde"), st.sampled_from("abcde"))), min_size=2))
def test_two_columns_never_have_one_name_in_files_and_a_column_keeps_its_own(
    starts: list[tuple[list[str], dict[str, str]]],
) -> None:
    """Whatever is renamed, dropped, added and comes back, start after start."""
    pipeline = appended(*starts[0][0])
    for names, renames in starts[1:]:
        was, pipeline = pipeline, after(pipeline, appended(*names), one_to_one(renames))
        before, ids = column_ids(was.output), column_ids(pipeline.output)
        assert list(ids) == names
        assert len({*ids.values()}) == len(ids)
        assert all(ids[name] == before[name] for name in names if name in before)
        for old, new in one_to_one(renames).items():
            if old in before and old not in names and new in names and new not in before:
                assert ids[new] == before[old]
        read = with_names_of(shown(was), shown(pipeline)).pipeline.output
        assert {name: id_ for name, id_ in column_ids(read).items() if id_ in ids.values()} == {
            name: id_ for name, id_ in ids.items() if id_ in before.values()
        }
        assert len({*read.names}) == len(read.names)


def one_to_one(renames: dict[str, str]) -> dict[str, str]:
    """Those of the renames that a user may declare: each name once, and on one side."""
    found: dict[str, str] = {}
    for old, new in renames.items():
        if old != new and {old, new}.isdisjoint({*found, *found.values()}):
            found[old] = new
    return found


def test_a_renamed_column_of_files_keeps_the_rule_for_types() -> None:
    was = appended("carrier", type_=pa.int32())
    wider, other = (after(was, appended("airline", type_=type_), RENAMED) for type_ in (pa.int64(), TEXT))
    assert breaking_changes(was, wider) == ()
    assert breaking_changes(was, other) == ("column airline was int32, now it is string",)


def test_the_manifest_remembers_the_names_in_files() -> None:
    renamed = after(appended("carrier"), appended("airline"), RENAMED)
    again = decode_manifest(encode_manifest(a_manifest(pipeline=renamed)), "manifest")
    assert column_ids(again.pipeline.output) == {"airline": "carrier"}
