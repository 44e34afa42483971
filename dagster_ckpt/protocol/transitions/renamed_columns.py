"""Which columns of a step the code has under new names, so that its state keeps the old ones.

The user says once which columns were renamed (`renamed={"old": "new"}`). A step then works under the names that its
state has. `Pipeline.columns` has both names of each column of its output, and `InputSpec.columns` those of the columns
that it reads. So the newest manifest remembers every rename, and a column that was renamed twice is still known.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.manifest.manifest import Ancestor, Manifest, Pipeline

_FORMERLY = b"dagster_ckpt.formerly"
"""In the metadata of a column of a table that only grows: the names that it has in older files, the newest first."""

_FUNCTIONS = ("aggregates", "functions")
"""The parameters that are functions, each with the name of its result."""

Renames = Mapping[str, str]
"""Old names of columns and their new ones: no name is on both sides, and each is there once."""

States = Sequence[tuple[Pipeline, Pipeline]]
"""A pipeline at the beginning and at the end of each state that a stream has had; a swap is between two of them."""


def own_names(was: Pipeline, now: Pipeline, renames: Renames) -> dict[str, str]:
    """The names in the code that are not those in the state, each with the latter.

    `was` is a step of the manifest, `now` the one in the code, under the code's names. A new rename is left out unless
    the step had a column of the old name and has one of the new name instead: what is not renamed there stays as it is,
    and the comparison of both steps decides.
    """
    if now.columns or was.operator != now.operator:
        return {}  # the columns of a query are known by their places
    here, there = _names(now), _names(was.own)
    known = dict(was.columns) | {own: name for each in was.inputs for own, name in each.columns}
    shown = [known.get(own, own) for own in there]
    names = zip(_renamed_names(shown, here, renames), there, strict=True)
    found = {name: own for name, own in names if name in here and name != own}
    return {**found, **_move_aside(found, here, there)}


def _renamed_names(shown: Sequence[str], here: Collection[str], renames: Renames) -> list[str]:
    """The names that these columns of the manifest have in the code, if it has them."""

    def is_meant(old: str, new: str) -> bool:
        return old not in here and new not in shown

    return [renames[name] if name in renames and is_meant(name, renames[name]) else name for name in shown]


def _move_aside(found: Mapping[str, str], here: Sequence[str], there: Sequence[str]) -> dict[str, str]:
    """Other names for columns of the code whose names the state has for renamed ones: none may hide the other."""
    taken, aside = {*here, *there}, dict[str, str]()
    for name in here:
        if name in found.values() and name not in found:
            aside[name] = next(free for number in count(2) if (free := f"{name} ({number})") not in taken)
            taken.add(aside[name])
    return aside


def with_names_of(shown: Manifest, newest: Manifest) -> Manifest:
    """The manifest with the names that the newest one has for the same columns of the stream's table.

    So a change log has one name for a column, over a rename too. A column is the same if the last step has it under the
    same name of its own, made by the same function: `a0` of a query is another one where its aggregates have changed.
    In a table that only grows it is the same if the newest manifest says so: its files have names. A stream that was
    rebuilt meanwhile has columns of its own: over the swap a column is the same if it has the same name in the table.
    """
    was = shown.pipeline
    if was.appends:
        return replace(shown, pipeline=replace(was, output=under_names_of(was.output, newest.pipeline.output)))
    if was.columns == newest.pipeline.columns and shown.ancestors == newest.ancestors:
        return shown  # as nearly all are
    names = _newest_names(was, _states(shown, newest))
    if all(old == name for old, name in names.items()) or len(set(names.values())) < len(names):
        return shown  # also where one column had a name then, and another has it now
    output = pa.schema([_rename(field, names[field.name]) for field in was.output])
    columns = tuple((own, names[was.name_of(own)]) for own in was.own.output.names)
    return replace(shown, pipeline=replace(was, output=output, columns=columns))


def has_swapped_since(shown: Manifest, newest: Manifest) -> bool:
    """Whether a rebuilt stream has taken over since an epoch, and was not left behind by a rollback.

    The state of that epoch is then another one than the newest, with names of its own.
    """
    done, undone = _swaps(newest)
    return any(each not in undone and each not in shown.ancestors for each in done)


def _swaps(newest: Manifest) -> tuple[list[Ancestor], list[Ancestor]]:
    """The streams that have taken over, and those of them that a rollback has left behind."""
    swaps = [each for each in newest.ancestors if each.swapped]
    undone = [each for each in swaps if each.handover is not None and is_abandoned(newest, each.handover.epoch)]
    return swaps, undone


def columns_alone(pipeline: Pipeline) -> Pipeline:
    """The last step with what `with_names_of` compares, and nothing else."""
    parameters = {name: pipeline.parameters[name] for name in _FUNCTIONS if name in pipeline.parameters}
    return replace(pipeline, parameters=parameters, inputs=(), keys=(), tables=(), before=())


def _states(shown: Manifest, newest: Manifest) -> States:
    """The states from the one of `shown` to that of `newest`; none where it is not known how one became the other.

    What a rollback left behind is not between them. A change of the steps abandons all epochs too, but goes on with the
    state: so of an abandoned epoch it is known only where all swaps are before it and none was abandoned.
    """
    swaps, undone = _swaps(newest)
    if is_abandoned(newest, shown.epoch):
        since = [each for each in swaps if each in undone or each not in shown.ancestors]
        return [] if since else [(shown.pipeline, newest.pipeline)]
    handovers = [each.handover for each in swaps if each not in undone and each not in shown.ancestors]
    known = [each for each in handovers if each is not None]
    if len(known) < len(handovers):
        return []
    begins = [shown.pipeline, *(each.after for each in known)]
    ends = [*(each.before for each in known), newest.pipeline]
    return list(zip(begins, ends, strict=True))


def _newest_names(was: Pipeline, states: States) -> dict[str, str]:
    """For each column of the table the name that it had last."""
    names = {name: name for name in was.output.names}
    there = names
    for first, last in states:
        new = _names_at_end(first, last)
        there = {name: new[then] for name, then in there.items() if then in new}
        names = {**names, **there}
    return names


def _names_at_end(first: Pipeline, last: Pipeline) -> dict[str, str]:
    """The columns that a table still has at the end, by the names that it had for them at the beginning."""
    if first.operator != last.operator or last.appends:
        return {}
    return {first.name_of(own): last.name_of(own) for own in same_columns(first, last)}


def with_former_names(asset: str, was: Pipeline, now: Pipeline, renames: Renames) -> pa.Schema:
    """The output of `now`, whose table only grows and has files of `was`, with the names that columns have in those.

    A column was renamed if the user says so, or if the step has it under the same name of its own, made by the same
    function. Raises `InvalidPipelineError` for a new column with a name that those files have for another one.
    """
    before, there = was.output.names, set(now.output.names)
    olds = {new: old for old, new in renames.items() if old in before and old not in there}
    if now.tables and was.operator == now.operator:
        olds |= {now.name_of(own): was.name_of(own) for own in same_columns(was, now)}
    fields = []
    for field in now.output:
        old = field.name if field.name in before else olds.get(field.name)
        known = () if old is None else former_names(was.output).get(old, ())
        names = known if old in (None, field.name) else (old, *known)
        fields.append(_with_former(field, tuple(name for name in names if name != field.name)))
    table = pa.schema(fields)
    for column, names in former_names(table).items():
        if taken := there.intersection(names):
            raise InvalidPipelineError(
                f"older files of the table have {column!r} under a name that is another column's now: give that one "
                f"another name. asset={asset}, column={min(taken)}"
            )
    return table


def former_names(table: pa.Schema) -> dict[str, tuple[str, ...]]:
    """The columns that have other names in older files, each with these, the newest first."""
    marked = ((field.name, (field.metadata or {}).get(_FORMERLY)) for field in table)
    return {name: tuple(json.loads(names)) for name, names in marked if names is not None}


def names_in_file(columns: Collection[str], former: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The table's columns that a file with these columns has, each with its name there."""
    found = {name: name for name in columns}
    for name, names in former.items():
        old = None if name in columns else next((each for each in names if each in columns), None)
        if old is not None:
            del found[old]
            found[name] = old
    return found


def check_renames(asset: str, stored: Pipeline | None, declared: Pipeline, renames: Renames) -> None:
    """Raise `InvalidPipelineError` for a rename that cannot be meant.

    `stored` is the pipeline of the newest manifest, None before the first epoch; `declared` that of the code. One that
    has been written is fine, and so is one that nothing has to be done for.
    """
    table, there = declared.output.names, _outputs(declared)
    for was, now in () if stored is None else zip(stored.steps, declared.steps, strict=False):
        for old, new in renames.items():
            if _takes_over(was, now, old, new):
                raise InvalidPipelineError(
                    f"renamed={{{old!r}: {new!r}}}, but the stream has a column {new!r} of its own, which is dropped: "
                    f"drop it in a start of its own first, or choose another name. asset={asset}"
                )
    for old, new in renames.items():
        if new not in there:
            raise InvalidPipelineError(
                f"renamed={{{old!r}: {new!r}}}, but the code's table has no column {new!r}: rename the column in the "
                f"code too.{did_you_mean(new, table)} asset={asset}, columns={table}"
            )
        if stored is None or new in _outputs(stored):
            continue
        if old not in _outputs(stored):
            raise InvalidPipelineError(
                f"renamed={{{old!r}: {new!r}}}, but the stream's table has no column {old!r}: give the name that it "
                f"has now.{did_you_mean(old, stored.output.names)} asset={asset}, columns={stored.output.names}"
            )
        if old in table and new in table:
            raise InvalidPipelineError(
                f"renamed={{{old!r}: {new!r}}}, but the code's table still has {old!r} besides {new!r}, so one of them "
                f"is a new column: leave it out of renamed. asset={asset}, columns={table}"
            )


def _takes_over(was: Pipeline, now: Pipeline, old: str, new: str) -> bool:
    """Whether the code drops the step's column `new`, and has its column `old` under that name."""
    if now.columns or was.operator != now.operator:
        return False
    here, there = _names(now), _names(was.own)
    known = dict(was.columns) | {own: name for each in was.inputs for own, name in each.columns}
    shown = {known.get(own, own): own for own in there}
    formerly = former_names(was.output).get(new, ())
    both = old in shown and new in shown and shown[new] != old and old not in formerly
    return both and new in here and old not in here


def under_names_of(was: pa.Schema, now: pa.Schema) -> pa.Schema:
    """The columns under the names that they have now."""
    own = names_in_file(was.names, former_names(now))
    names = {old: name for name, old in own.items()}
    return pa.schema([_rename(field, names[field.name]) for field in was])


def _rename(field: pa.Field, name: str) -> pa.Field:
    known = former_names(pa.schema([field])).get(field.name, ())
    return field if name == field.name else _with_former(field.with_name(name), (field.name, *known))


def _with_former(field: pa.Field, names: Sequence[str]) -> pa.Field:
    if not names:
        return field
    return field.with_metadata({**(field.metadata or {}), _FORMERLY: json.dumps(names).encode()})


def same_columns(was: Pipeline, now: Pipeline) -> list[str]:
    """The columns, by the step's own names, that both have and make by the same function."""
    here = set(now.own.output.names)
    return [own for own in was.own.output.names if own in here and _function_of(was, own) == _function_of(now, own)]


def _function_of(step: Pipeline, column: str) -> list[Any]:
    """The function of the step that makes a column of its output; none makes one that is only passed on."""
    functions: Any = [step.parameters.get(name, ()) for name in _FUNCTIONS]
    return [each for listed in functions for each in listed if each["name"] == column]


def _outputs(pipeline: Pipeline) -> set[str]:
    """The names of the columns of all steps' outputs, as users see them."""
    return {name for step in pipeline.steps for name in step.output.names}


def _names(step: Pipeline) -> list[str]:
    """The columns that a step reads and emits, in order."""
    read = (name for each in step.inputs for name in each.schema.names)
    return list(dict.fromkeys(name for name in (*read, *step.output.names) if name != CHANGE_TYPE))
