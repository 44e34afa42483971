"""What changed between the pipeline that made a stream's state and the one that continues it."""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa

from dagster_ckpt.nullability import widens
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec


def breaking_changes(before: Pipeline, after: Pipeline) -> tuple[str, ...]:
    """Describe each change that makes the state (or an append-only stream's files) unreadable; empty: continue.

    Inputs may gain or lose columns as long as the state stays the same, and so may the table of a stream without state:
    its older files simply have other columns. A column that stays must keep its type, but may allow more nulls within
    it. A column of a state table must stay nullable, since it may hold nulls; any other column need not.

    A delivery must stay one of the same stream and mode. The rest is in its destination, which judges it.

    Of several steps each is compared with the one in its place.
    """
    if len(before.steps) != len(after.steps):
        return (f"there were {len(before.steps)} steps, now there are {len(after.steps)}",)
    if not before.before:
        return step_changes(before, after)
    steps = enumerate(zip(before.steps, after.steps, strict=True), 1)
    return tuple(f"step {number}: {each}" for number, (was, now) in steps for each in step_changes(was, now))


def step_changes(before: Pipeline, after: Pipeline) -> tuple[str, ...]:
    """The same of one step, whatever the steps before it are."""
    return tuple(_changes(before, after))


def _changes(before: Pipeline, after: Pipeline) -> Iterator[str]:
    if before.operator != after.operator:
        yield f"the operator was {before.operator}, now it is {after.operator}"
        return
    if after.delivers:
        modes = [{"mode": each.parameters["mode"]} for each in (before, after)]
        yield from _parameters("", *modes)
        yield from _sources("the input", before.inputs[0], after.inputs[0])
        return
    if before.keys != after.keys:
        yield f"the key was {_listed(before.keys)}, now it is {_listed(after.keys)}"
    yield from _parameters("", before.parameters, after.parameters)
    yield from _inputs(before.inputs, after.inputs)
    yield from _tables(before.tables, after.tables)
    was, now = before.own.output, after.own.output
    yield from _types("column", was, now)
    if before.tables:
        yield from _names("column", was, now)


def _parameters(where: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if name not in after:
            yield f"{where}{name} was removed"
        elif name not in before:
            yield f"{where}{name} was added"
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from _parameters(f"{where}{name}: ", was, now)
        elif _json(was) != _json(now):
            yield f"{where}{name} was {_json(was)}, now it is {_json(now)}"


def _inputs(before: tuple[InputSpec, ...], after: tuple[InputSpec, ...]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"there were {len(before)} inputs, now there are {len(after)}"
        return
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        which = "the input" if len(before) == 1 else f"input {number}"
        if was.step != now.step:
            yield f"{which} was {_read_by(was)}, now it is {_read_by(now)}"
            continue
        if now.behind_us > was.behind_us:
            # What that step has emitted as final would be open again.
            behind = f"{was.behind_us / 1e6:g} s behind the watermark of step {(was.step or 0) + 1}"
            yield f"{which} was at most {behind}, now it is {now.behind_us / 1e6:g} s, and its watermark would go back"
        if was.work != now.work:
            yield f"what Spark does with the rows of {which} was `{was.work}`, now it is `{now.work}`"
        yield from _sources(which, was, now)
        yield from _types(f"{which}'s column", was.schema, now.schema)


def _sources(which: str, before: InputSpec, after: InputSpec) -> Iterator[str]:
    for source in before.sources:
        if source not in after.sources:
            yield f"{which} no longer reads {source.format} {source.address}"
    for source in after.sources:
        if source not in before.sources:
            yield f"{which} now also reads {source.format} {source.address}"


def _read_by(read: InputSpec) -> str:
    return "that of a source" if read.step is None else f"that of step {read.step + 1}"


def _tables(before: tuple[StateTableSpec, ...], after: tuple[StateTableSpec, ...]) -> Iterator[str]:
    now = {table.name: table for table in after}
    for table in before:
        other = now.pop(table.name, None)
        if other is None:
            yield f"state table {table.name} was removed"
            continue
        if (table.keys, table.sort) != (other.keys, other.sort):
            yield f"state table {table.name} was sorted by {_listed(table.keys)}, now by {_listed(other.keys)}"
        yield from _types(f"state table {table.name}'s column", table.schema, other.schema)
        yield from _lost_nulls(f"state table {table.name}'s column", table.schema, other.schema)
        yield from _names(f"state table {table.name}'s column", table.schema, other.schema)
    for name in now:
        yield f"state table {name} was added"


def _types(what: str, before: pa.Schema, after: pa.Schema) -> Iterator[str]:
    there = set(after.names)
    for name in before.names:
        if name in there and not widens(before.field(name).type, after.field(name).type):
            yield f"{what} {name} was {before.field(name).type}, now it is {after.field(name).type}"


def _lost_nulls(what: str, before: pa.Schema, after: pa.Schema) -> Iterator[str]:
    there = set(after.names)
    for name in before.names:
        if name in there and before.field(name).nullable and not after.field(name).nullable:
            yield f"{what} {name} could be null, now it cannot"


def _names(what: str, before: pa.Schema, after: pa.Schema) -> Iterator[str]:
    was, now = set(before.names), set(after.names)
    for name in before.names:
        if name not in now:
            yield f"{what} {name} was removed"
    for name in after.names:
        if name not in was:
            yield f"{what} {name} was added"
    if before.names != after.names and set(before.names) == set(after.names):
        yield f"{what}s were in the order {_listed(before.names)}, now {_listed(after.names)}"


def _listed(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, tuple | list) and names else "none"


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)
