"""What changed between the pipeline that made a stream's state and the one that continues it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa

from dagster_ckpt.nullability import differs_in_nulls_alone
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec
from dagster_ckpt.protocol.transitions.later_columns import begins_after
from dagster_ckpt.protocol.transitions.renamed_columns import under_names_of
from dagster_ckpt.split_totals import full_total_for
from dagster_ckpt.widening import widens

AGGREGATES = "aggregates"
_OF_GROUPS = frozenset({"aggregate", "window", "session"})
"""Operators whose state has columns for each aggregate, named by what they hold: two that need the same share them."""
_BY_COLUMN = _OF_GROUPS | {"deduplicate"}
"""Operators that read a column of their state by its name alone, so that others may come and go."""
_EXPIRING = frozenset({"aggregate", "deduplicate"})
"""Operators that compare a key's time with the watermark when it is due, not when it is put."""
_EXPIRE_AFTER, _UPDATING = "expire_after_us", "updating"
BESIDE = frozenset({
    "count_distinct", "sum_distinct", "avg_distinct", "percentile", "median", "percentile_disc", "mode", "skewness",
    "kurtosis", "collect_list", "collect_set", "user_defined",
})  # fmt: skip
"""Aggregates that have a table beside the row of a group: a test compares them with the registry of `operators`."""
BESIDE_WHERE_RETRACTED = BESIDE | {"min", "max", "first", "last", "bit_and", "bit_or", "collect"}
"""The same, where rows are retracted."""
_SKETCH = "approx_count_distinct"
_MAIN_TABLES = frozenset({"groups", "expiries", "windows", "ends", "open"})
_FORGETS = "union_all"
"""An operator that has forgotten its rows at the end of each epoch."""
_JOIN, _WHERE = "regular_join", "where"
_SIDES = ("left", "right")
_LATE = "_late_"
"""The tables of `_OF_GROUPS` that do not depend on the aggregates; those of late rows begin like this."""


def breaking_changes(before: Pipeline, after: Pipeline) -> tuple[str, ...]:
    """Describe each change that makes the state (or an append-only stream's files) unreadable; empty: continue.

    Inputs may gain or lose columns as long as the state stays the same, and so may the table of a stream without state:
    its older files simply have other columns. A column that stays must keep its type or get a wider one (`widens`). A
    column of a state table must stay nullable, since it may hold nulls; any other column need not.

    The aggregates of groups, windows and sessions may change as far as the state has what they need: one may be dropped
    or renamed, one may come that is made of columns that the state has (the halves of a total too, `split_totals`), or
    that begins now (`later_columns`). A step that reads them fits if it reads the same columns, of the same functions.
    A join that another step reads may lose columns of rows that only come.

    A delivery must stay one of the same stream and mode. The rest is in its destination, which judges it.

    With several steps each is compared with the one in its place.
    """
    if len(before.steps) != len(after.steps):
        return (f"there were {len(before.steps)} steps, now there are {len(after.steps)}",)
    if not before.before:
        return step_changes(before, after)
    steps = enumerate(zip(before.steps, after.steps, strict=True), 1)
    return tuple(
        f"step {number}: {each}"
        for number, (was, now) in steps
        for each in step_changes(was, now, is_read=number <= len(before.before))
    )


def redefined_columns(before: Pipeline, after: Pipeline) -> list[str]:
    """The columns of the table that another aggregate makes now: readers of the log have rows with the old values."""
    was, now = ({step.name_of(each["name"]): _function(each) for each in _aggregates(step)} for step in (before, after))
    return [name for name, function in now.items() if name in was and was[name] != function]


def _function(aggregate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in aggregate.items() if name != "name" and value is not None}


def step_changes(before: Pipeline, after: Pipeline, *, is_read: bool = False) -> tuple[str, ...]:
    """The same of one step, whatever the steps before it are.

    `is_read`: another step reads its rows, and has state that is made of these columns.
    """
    return tuple(_changes(before, after, is_read=is_read))


def _changes(before: Pipeline, after: Pipeline, *, is_read: bool) -> Iterator[str]:
    if before.operator != after.operator:
        yield f"the operator was {before.operator}, now it is {after.operator}"
        return
    if after.delivers:
        modes = [{"mode": each.parameters["mode"]} for each in (before, after)]
        yield from _parameters("", *modes)
        yield from _sources("the input", before.inputs[0], after.inputs[0])
        return
    if is_read and after.operator == _FORGETS:
        # Which columns it passes on matters to its readers alone, which know them by name.
        yield from _parameters("", *({_WHERE: each.parameters.get(_WHERE)} for each in (before, after)))
        yield from _inputs(before.inputs, after.inputs, keeps=True)
        return
    if before.keys != after.keys:
        yield f"the key was {_names_text(before.keys)}, now it is {_names_text(after.keys)}"
    stay = (_that_stay(one, other) for one, other in ((before, after), (after, before)))
    yield from _parameters("", *stay)
    if is_read:
        yield from _other_functions(before, after)
    yield from _beside(before, after)
    yield from _inputs(before.inputs, after.inputs, keeps=bool(before.tables))
    yield from _sketch_changes(before, after)
    by_column = after.operator in _BY_COLUMN
    begins_now = after.operator in _OF_GROUPS and not after.parameters.get(_UPDATING)
    may_go = _unread_columns(before) if is_read else frozenset()
    yield from _tables(
        before.tables, after.tables, _aggregates(after), by_column=by_column, begins_now=begins_now, may_go=may_go
    )
    now = after.own.output
    was = under_names_of(before.own.output, now)
    yield from _types("column", was, now)
    if before.tables and not by_column:
        yield from _names("column", was, now, may_go)


def _other_functions(before: Pipeline, after: Pipeline) -> Iterator[str]:
    """The aggregates under whose name another step has read another one."""
    was = {each["name"]: _function(each) for each in _aggregates(before)}
    for each in _aggregates(after):
        name, now = each["name"], _function(each)
        if was.get(name, now) != now:
            yield f"column {name} was {_json(was[name])}, now it is {_json(now)}"


def _unread_columns(join: Pipeline) -> frozenset[str]:
    """The columns of a join's state that may go, where another step reads the join: those of rows that never go.

    Such rows have numbers. One that may be taken back is found by all its columns.
    """
    tables = {table.name: table for table in join.tables if join.operator == _JOIN}
    sides = [tables[f"{side}_rows"] for side in _SIDES if f"{side}_index" not in tables and f"{side}_rows" in tables]
    return frozenset(name for each in sides for name in each.schema.names if name not in each.keys)


def _that_stay(one: Pipeline, other: Pipeline) -> dict[str, object]:
    """The parameters of `one` that must be those of `other`."""
    free = {AGGREGATES} if one.operator in _OF_GROUPS else set()
    if one.operator in _EXPIRING and None not in (
        one.parameters.get(_EXPIRE_AFTER),
        other.parameters.get(_EXPIRE_AFTER),
    ):
        free.add(_EXPIRE_AFTER)
    return {name: value for name, value in one.parameters.items() if name not in free}


def _aggregates(step: Pipeline) -> list[dict[str, Any]]:
    """The aggregates of groups, as `agg` spells them."""
    spelled: Any = step.parameters.get(AGGREGATES, ()) if step.operator in _OF_GROUPS else ()
    return [dict(each) for each in spelled]


def _beside(before: Pipeline, after: Pipeline) -> Iterator[str]:
    """Tables beside the row of a group are numbered, so what is in them must stay in its order."""
    tables = {table.name for step in (before, after) for table in step.tables if step.operator in _OF_GROUPS}
    if all(name in _MAIN_TABLES or name.startswith(_LATE) for name in tables):
        return
    beside = BESIDE_WHERE_RETRACTED if before.parameters.get(_UPDATING) else BESIDE
    was, now = (
        [
            {name: value for name, value in each.items() if name != "name"}
            for each in _aggregates(step)
            if each["function"] in beside and each.get("since") is None
        ]
        for step in (before, after)
    )
    if was != now:
        yield (
            f"the aggregates with a table beside were {_functions(was)}, now they are {_functions(now)}: such a table "
            "needs all rows from the beginning, and its place among the others"
        )


def _sketch_changes(before: Pipeline, after: Pipeline) -> Iterator[str]:
    """A sketch keeps hashes of values, and that of a decimal depends on its scale."""
    was, now = (
        {(each["column"], each.get("since")) for each in _aggregates(step) if each["function"] == _SKETCH}
        for step in (before, after)
    )
    for column in sorted({name for name, _ in was & now}):
        types = [step.inputs[0].schema.field(column).type for step in (before, after)]
        if all(map(pa.types.is_decimal, types)) and types[0].scale != types[1].scale:
            yield (
                f"the input's column {column} was {types[0]}, now it is {types[1]}, with another scale: {_SKETCH} "
                "would count its values again"
            )


def _functions(aggregates: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['function']}({each['column']})" for each in aggregates) or "none"


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


def _inputs(before: tuple[InputSpec, ...], after: tuple[InputSpec, ...], *, keeps: bool) -> Iterator[str]:
    """`keeps`: the step has state, which is made of the rows as Spark has worked them."""
    if len(before) != len(after):
        yield f"there were {len(before)} inputs, now there are {len(after)}"
        return
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        which = "the input" if len(before) == 1 else f"input {number}"
        if was.step != now.step:
            yield f"{which} was {_input_text(was)}, now it is {_input_text(now)}"
            continue
        if now.behind_us > was.behind_us:
            # What that step has emitted as final would be open again.
            behind = f"{was.behind_us / 1e6:g} s behind the watermark of step {(was.step or 0) + 1}"
            yield f"{which} was at most {behind}, now it is {now.behind_us / 1e6:g} s, and its watermark would go back"
        if keeps and was.work != now.work:
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


def _input_text(read: InputSpec) -> str:
    return "that of a source" if read.step is None else f"that of step {read.step + 1}"


def _tables(
    before: tuple[StateTableSpec, ...],
    after: tuple[StateTableSpec, ...],
    aggregates: Sequence[Mapping[str, Any]],
    *,
    by_column: bool,
    begins_now: bool,
    may_go: AbstractSet[str],
) -> Iterator[str]:
    now = {table.name: table for table in after}
    for table in before:
        other = now.pop(table.name, None)
        if other is None:
            yield f"state table {table.name} was removed"
            continue
        if (table.keys, table.sort) != (other.keys, other.sort):
            yield f"state table {table.name} was sorted by {_names_text(table.keys)}, now by {_names_text(other.keys)}"
        column = f"state table {table.name}'s column"
        yield from _types(column, table.schema, other.schema)
        yield from _same_keys(column, table, other)
        yield from _lost_nulls(column, table.schema, other.schema)
        if by_column:
            yield from _unknown(table, other, aggregates, begins_now=begins_now)
        else:
            yield from _names(column, table.schema, other.schema, may_go)
    for name in now:
        yield f"state table {name} was added"


def _types(what: str, before: pa.Schema, after: pa.Schema) -> Iterator[str]:
    there = set(after.names)
    for name in before.names:
        if name in there and not widens(before.field(name).type, after.field(name).type):
            yield f"{what} {name} was {before.field(name).type}, now it is {after.field(name).type}"


def _same_keys(what: str, before: StateTableSpec, after: StateTableSpec) -> Iterator[str]:
    """The hash of a key depends on its type, and with it the key's place."""
    for name in set(before.keys).intersection(after.schema.names):
        was, now = before.schema.field(name).type, after.schema.field(name).type
        if widens(was, now) and not differs_in_nulls_alone(was, now):
            yield f"{what} {name} is part of the key, and was {was}, now it is {now}"


def _unknown(
    before: StateTableSpec, after: StateTableSpec, aggregates: Sequence[Mapping[str, Any]], *, begins_now: bool
) -> Iterator[str]:
    """The columns that the state does not have, that are not made of what it has, and that cannot begin now."""
    begun = {each.get("since") for each in aggregates}
    of_aggregates = aggregates and after.name in _MAIN_TABLES  # where no column but those of the key is the user's
    there = {each.name: each for each in before.schema if of_aggregates and each.name not in before.keys}
    new = [
        each
        for each in after.schema
        if each.name not in before.schema.names and full_total_for(each.name, there) is None
    ]
    for field in new:
        since = begins_after(field.name)
        if since is None or since not in begun or not field.nullable:
            now = '; an aggregate with since="now" begins with the next epoch' if begins_now else ""
            yield f"state table {after.name} has no {field.name}, which needs all rows from the beginning{now}"


def _lost_nulls(what: str, before: pa.Schema, after: pa.Schema) -> Iterator[str]:
    there = set(after.names)
    for name in before.names:
        if name in there and before.field(name).nullable and not after.field(name).nullable:
            yield f"{what} {name} could be null, now it cannot"


def _names(what: str, before: pa.Schema, after: pa.Schema, may_go: AbstractSet[str]) -> Iterator[str]:
    was, now = set(before.names), set(after.names)
    for name in before.names:
        if name not in now and name not in may_go:
            yield f"{what} {name} was removed"
    for name in after.names:
        if name not in was:
            yield f"{what} {name} was added"
    if before.names != after.names and set(before.names) == set(after.names):
        yield f"{what}s were in the order {_names_text(before.names)}, now {_names_text(after.names)}"


def _names_text(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, tuple | list) and names else "none"


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)
