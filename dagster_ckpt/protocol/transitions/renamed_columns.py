"""Which columns of a step the code has under new names, so that its state keeps the old ones.

The user says once which columns were renamed (`renamed={"old": "new"}`). A step then works under the names that its
state has. `Pipeline.columns` has both names of each column of its output, and `InputSpec.columns` those of the columns
that it reads. So the newest manifest remembers every rename, and a column that was renamed twice is still known.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.manifest.manifest import Ancestor, Manifest, Pipeline

_ID = b"dagster_ckpt.column_id"
"""In the metadata of a column of a table that only grows, and was renamed: the name that it has in all files."""

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
    here, there, known = _names(now), _names(was.own), _names_in_code(was)
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
            aside[name] = _free_name(name, taken)
            taken.add(aside[name])
    return aside


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name with the least number that makes it another than these."""
    return next(free for number in count(2) if (free := f"{name} ({number})") not in taken)


def with_names_of(shown: Manifest, newest: Manifest) -> Manifest:
    """The manifest with the names that the newest one has for the same columns of the stream's table.

    So a change log has one name for a column, over a rename too. A column is the same if the last step has it under the
    same name of its own, made by the same function: `a0` of a query is another one where its aggregates have changed.
    In a table that only grows it is the same if it has the same id. A stream that was rebuilt meanwhile has columns of
    its own: over the swap a column is the same if it has the same name in the table.
    """
    was = shown.pipeline
    if was.appends:
        return replace(shown, pipeline=replace(was, output=under_names_of(was.output, newest.pipeline.output)))
    if was.columns == newest.pipeline.columns and shown.ancestors == newest.ancestors:
        return shown  # as nearly all are
    names = _newest_names(was, _states(shown, newest))
    if all(old == name for old, name in names.items()) or len(set(names.values())) < len(names):
        return shown  # also where one column had a name then, and another has it now
    output = pa.schema([field.with_name(names[field.name]) for field in was.output])
    columns = tuple((own, names[was.name_of(own)]) for own in was.own.output.names)
    return replace(shown, pipeline=replace(was, output=output, columns=columns))


def uses_old_names(code: Pipeline, shown: Pipeline, newest: Pipeline) -> bool:
    """Whether the code, which goes back to an epoch, has the names of that epoch and not the newest ones.

    So it is where a name has become another column's since, and the code has not the new name of the one that it was.
    """
    steps = zip(code.steps, shown.steps, newest.steps, strict=False)
    return any(_step_uses_old_names(*each) for each in steps)


def _step_uses_old_names(code: Pipeline, shown: Pipeline, newest: Pipeline) -> bool:
    here, then, now = _names(code), _own_by_name(shown), _own_by_name(newest)
    names = {own: name for name, own in now.items()}
    return any(
        name in then and name in now and then[name] != now[name] and names.get(then[name]) not in here for name in here
    )


def _names_in_code(step: Pipeline) -> dict[str, str]:
    """The columns of a step's state that have another name in the code, each with that one."""
    return dict(step.columns) | {own: name for each in step.inputs for own, name in each.columns}


def _own_by_name(step: Pipeline) -> dict[str, str]:
    """The columns that a step reads and emits by the names of the code, each with that in the state or in files."""
    known = _names_in_code(step)
    own = {known.get(own, own): own for own in _names(step.own)}
    return own | (column_ids(step.output) if step.appends else {})


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


def with_column_ids(was: Pipeline, now: Pipeline, renames: Renames) -> pa.Schema:
    """The output of `now`, a table that only grows and has files of `was`, with the name of each column in its files.

    A column has there, for ever, the name that it had first: its id. It is the same column under a new name if the user
    says so, or if the step has it under the same name of its own, made by the same function. A new column gets an id
    that no other has.
    """
    before, there = column_ids(was.output), now.output.names
    new_names = {old: new for old, new in renames.items() if old in before}
    if now.tables and was.operator == now.operator:
        new_names |= {was.name_of(own): now.name_of(own) for own in same_columns(was, now)}
    olds = {new: old for old, new in new_names.items() if old not in there} | {name: name for name in before}
    ids = {name: before[olds[name]] for name in there if name in olds}
    for name in there:
        if name not in ids:  # that of a dropped column may come back: so it does where a stream goes back to an epoch
            taken = {*before.values(), *ids.values()}
            ids[name] = name if name not in ids.values() else _free_name(name, taken)
    return pa.schema([_with_id(field, ids[field.name]) for field in now.output])


def column_ids(table: pa.Schema) -> dict[str, str]:
    """Each column of a table that only grows, with its name in all files of the table."""
    return {field.name: (field.metadata or {}).get(_ID, field.name.encode()).decode() for field in table}


def names_in_files(pipeline: Pipeline) -> dict[str, str]:
    """Each column of the stream's table, with its name in the files of changes: these never change, names do."""
    if pipeline.appends:
        return column_ids(pipeline.output)
    return {name: name for name in pipeline.output.names} | {name: own for own, name in pipeline.columns}


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
    here, shown = _names(now), _own_by_name(was)
    both = old in shown and new in shown and shown[new] != old
    return both and new in here and old not in here


def under_names_of(was: pa.Schema, now: pa.Schema) -> pa.Schema:
    """The columns under the names that they have now: those of the same ids, or, over a swap, of the same names."""
    names = {id_: name for name, id_ in column_ids(now).items()}
    ids = column_ids(was)
    known = {names[id_] for id_ in ids.values() if id_ in names}
    return pa.schema(
        [
            _with_id(field.with_name(names.get(ids[field.name], field.name)), ids[field.name])
            for field in was
            if ids[field.name] in names or field.name not in known
        ]
    )


def _with_id(field: pa.Field, id_: str) -> pa.Field:
    """The column with its id where that may not be its name."""
    metadata = {name: value for name, value in (field.metadata or {}).items() if name != _ID}
    if id_ != field.name:
        metadata[_ID] = id_.encode()
    return field.with_metadata(metadata) if metadata else field.remove_metadata()


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
