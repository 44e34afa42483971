"""Which columns of a step the code has under new names, so that its state keeps the old ones.

The user says once which columns were renamed (`renamed={"old": "new"}`). A step then works under the names that its
state has, and `Pipeline.columns` has both names of each column of its output. So the newest manifest remembers every
rename, and a column that was renamed twice is still known.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline

Renames = Mapping[str, str]
"""Old names of columns and their new ones: no name is on both sides, and each is there once."""


def own_names(was: Pipeline, now: Pipeline, renames: Renames) -> dict[str, str]:
    """The names in the code that are not those in the state, each with the latter.

    `was` is a step of the manifest, `now` the one in the code, under the code's names. A new rename is left out unless
    the step had a column of the old name and has one of the new name instead: what is not renamed there stays as it is,
    and the comparison of both steps decides.
    """
    if now.columns or was.operator != now.operator:
        return {}  # the columns of a query are known by their places
    here, there = _names(now), _names(was.own)
    shown = {was.name_of(own) for own in there}
    found: dict[str, str] = {}
    for own in there:
        name = was.name_of(own)
        new = renames.get(name, name)
        is_new = new != name
        if is_new and (name in here or new in shown):
            new = name
        if new != own and new in here:
            found[new] = own
    taken = {*here, *there}
    for name in here:
        if name in found.values() and name not in found:
            # The state has another column under this name, which has a new one: a rename must not hide it.
            number = next(number for number in range(2, len(taken) + 3) if f"{name} ({number})" not in taken)
            found[name] = f"{name} ({number})"
            taken.add(found[name])
    return found


def named_as(shown: Manifest, newest: Manifest) -> Manifest:
    """The manifest with the names that the newest one has for the same columns of the stream's table.

    So a change log has one name for a column, over a rename too. A column is the same if the last step has it under the
    same name of its own, made by the same function: `a0` of a query is another one where its aggregates have changed.
    A table that only grows stays as it is: its files have the names.
    """
    was, now = shown.pipeline, newest.pipeline
    if was.columns == now.columns or was.operator != now.operator or was.appends or now.appends:
        return shown
    there, same = set(now.own.output.names), dict[str, str]()
    for own in was.own.output.names:
        is_same = own in there and _made_by(was, own) == _made_by(now, own)
        same[own] = now.name_of(own) if is_same else was.name_of(own)
    if len(set(same.values())) < len(same):
        return shown  # a name that one column had then, and another has now
    names = {was.name_of(own): name for own, name in same.items()}
    output = pa.schema([field.with_name(names[field.name]) for field in was.output])
    return replace(shown, pipeline=replace(was, output=output, columns=tuple(same.items())))


def check_renames(asset: str, stored: Pipeline | None, declared: Pipeline, renames: Renames) -> None:
    """Raise `InvalidPipelineError` for a rename that cannot be meant.

    `stored` is the pipeline of the newest manifest, None before the first epoch; `declared` that of the code. One that
    has been written is fine, and so is one that nothing has to be done for.
    """
    table, there = declared.output.names, _outputs(declared)
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


def _made_by(step: Pipeline, column: str) -> list[Any]:
    """The function of the step that makes a column of its output; none makes one that is only passed on."""
    functions: Any = [*_listed(step, "aggregates"), *_listed(step, "functions")]
    return [each for each in functions if each["name"] == column]


def _listed(step: Pipeline, parameter: str) -> Any:
    return step.parameters.get(parameter, ())


def _outputs(pipeline: Pipeline) -> set[str]:
    """The names of the columns of all steps' outputs, as users see them."""
    return {name for step in pipeline.steps for name in step.output.names}


def _names(step: Pipeline) -> list[str]:
    """The columns that a step reads and emits, in order."""
    read = (name for each in step.inputs for name in each.schema.names)
    return list(dict.fromkeys(name for name in (*read, *step.output.names) if name != CHANGE_TYPE))
