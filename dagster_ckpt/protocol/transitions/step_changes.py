"""Which steps of a changed pipeline keep their state, and how the stream goes on with the others empty.

A step is kept if no step that feeds it has changed, and its state has what its code needs (`compatibility`). Its own
columns may be others then, and what reads them is not kept. Every other step begins with empty state tables and the
whole table of each kept step that it reads, in one epoch that reads no source:

    before that epoch's manifest   the stream as it was: the old steps, their table, the old positions
    after it                       the new steps, whose state has all rows that were ever read; the same positions

So a crash leaves one of the two. The stream's table is another one then: the epochs before are abandoned.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.manifest.manifest import (
    KEPT_TABLE,
    ROW_KEY,
    ROWS_TABLE,
    IndexedList,
    Manifest,
    Pipeline,
    RunRef,
    Statistics,
)
from dagster_ckpt.protocol.transitions.compatibility import step_changes
from dagster_ckpt.protocol.transitions.edits import abandon_after, no_runs
from dagster_ckpt.protocol.transitions.renamed_columns import same_columns

Runs = dict[str, tuple[tuple[RunRef, ...], ...]]


@dataclass(frozen=True)
class StepChange:
    """The steps of a stream before and after a change. `kept` has, for each new step that is kept, the old one.

    `timed` are the new steps that read event times, as far as it matters: to them all old rows may be late.
    """

    before: Pipeline
    after: Pipeline
    kept: dict[int, int]
    timed: AbstractSet[int] = frozenset()

    @classmethod
    def between(cls, before: Pipeline, after: Pipeline, timed: AbstractSet[int] = frozenset()) -> "StepChange":
        """Compare two pipelines whose sources are spelled alike."""
        return cls(before, after, _match_steps(before, after), timed)

    @property
    def can_restart(self) -> bool:
        """Whether the changed steps can start over from the kept ones."""
        return not list(self.obstacles())

    @property
    def is_of_rows_alone(self) -> bool:
        """Whether no state of its own is lost or begun: just steps that have rows of kept ones changed (`mirror`).

        So it is if a filter or an expression after the last step with state is another one, is new or is gone.
        """
        begun = [step for number, step in enumerate(self.after.steps) if number not in self.kept]
        steps = [*(self.before.steps[number] for number in self.dropped_steps), *begun]
        return self.can_restart and all(step.operator == "mirror" for step in steps)

    @property
    def read(self) -> frozenset[int]:
        """The kept steps that a changed one reads, by their new numbers."""
        return frozenset(
            each.step
            for number, step in enumerate(self.after.steps)
            if number not in self.kept
            for each in step.inputs
            if each.step is not None and each.step in self.kept
        )

    @property
    def dropped_steps(self) -> tuple[int, ...]:
        """The old steps whose state is dropped."""
        return tuple(number for number in range(len(self.before.steps)) if number not in self.kept.values())

    def obstacles(self) -> Iterator[str]:
        """Why the changed steps cannot start over from the kept ones; none: they can."""
        if not self.kept:
            yield "no step is as it was"
            return
        for what, pipeline, kept in (
            ("removed or changed", self.before, set(self.kept.values())),
            ("new or changed", self.after, set(self.kept)),
        ):
            for number, step in enumerate(pipeline.steps):
                if number not in kept and any(each.step is None for each in step.inputs):
                    yield f"{step_name(pipeline, number)}, which is {what}, reads a source, whose past rows are gone"
                elif number not in kept and pipeline is self.after and number in self.timed:
                    name = step_name(pipeline, number)
                    yield f"{name}, which is {what}, reads event times, and all old rows are late"
        yield from self._lacks_rows()
        last = len(self.after.before)
        old = self._old(last) if last in self.kept else self.after
        if has_table(self.after) and not (has_table(old) or gives_rows(old)):
            yield f"{step_name(self.after, last)}, which is the last now, kept no table of its rows"
        if last in self.kept and self.after.appends:
            yield f"{step_name(self.after, last)}, which is the last now, only passed its rows on"

    def _lacks_rows(self) -> Iterator[str]:
        """The kept steps that cannot give a changed one the rows that they have made so far."""
        for number in sorted(self.read):
            old, new = self._old(number), self.after.steps[number]
            appended = old.appends and self.kept[number] == len(self.before.before)  # then the stream's files are it
            if appended and (others := _not_in_files(old, new)):
                yield (
                    f"{step_name(self.after, number)} has columns that its old rows do not have ({', '.join(others)}): "
                    "change them in a start of their own first"
                )
            if not (appended or has_table(old) or gives_rows(old)):
                yield f"{step_name(self.after, number)} keeps no rows that a changed step could begin with"

    def advice(self) -> str:
        """What to do about the change, as a part of a sentence; empty where steps make no difference."""
        if self.can_restart:
            return (
                "with dagster-ckpt restart-steps, or restart_steps: true in the run config, they start over "
                f"({self.text()}); "
            )
        if not self.kept:
            return ""
        return f"no step can be kept: {', and '.join(self.obstacles())}; "

    def text(self) -> str:
        """Which steps are kept, for people."""
        kept = ", ".join(step_name(self.after, number) for number in sorted(self.kept)) or "none"
        begun = (
            ", ".join(step_name(self.after, n) for n in range(len(self.after.steps)) if n not in self.kept) or "none"
        )
        gone = ", ".join(step_name(self.before, number) for number in self.dropped_steps) or "none"
        return f"steps that keep their state: {kept}; that start over: {begun}; whose state is dropped: {gone}"

    def _old(self, number: int) -> Pipeline:
        return self.before.steps[self.kept[number]]


def change_steps(parent: Manifest, pipeline: Pipeline) -> Manifest:
    """`parent` with these steps: kept ones with their state, the others empty, and nothing in the stream's table yet.

    What the first epoch of the changed stream builds on. It is in no chain: that epoch commits the new steps.
    """
    change = StepChange.between(parent.pipeline, pipeline)
    assert change.can_restart, "a change with obstacles is refused when the stream is opened"
    before = parent.pipeline
    runs = no_runs(pipeline, parent.shards)
    for number, old in change.kept.items():
        for spec in pipeline.steps[number].tables:
            if spec.name in {each.name for each in before.steps[old].tables}:
                runs[pipeline.name_in_runs(number, spec.name)] = parent.runs[before.name_in_runs(old, spec.name)]
    return replace(
        parent,
        pipeline=pipeline,
        runs=runs,
        changes=(),
        files=IndexedList(),
        event_times_us=_event_times(parent, change),
        statistics=_statistics(parent, change, runs),
        abandoned=abandon_after(parent.abandoned, EMPTY, parent.epoch),
    )


def has_table(step: Pipeline) -> bool:
    """Whether one of the step's state tables has the rows of its output as they are."""
    if step.appends or not step.tables:
        return False
    return ROW_KEY not in step.parameters or step.tables[0].name in (KEPT_TABLE, ROWS_TABLE)


def gives_rows(step: Pipeline) -> bool:
    """Whether the step's output follows from its state, although no state table has it (`RowsFromState`).

    A join that keeps rows without a match has some with a null in their key in its output, and not in its state. The
    state of ranks has rows that tie once.
    """
    match step.operator:
        case "regular_join":
            return step.parameters["how"] in ("inner", "semi")
        case "top":
            return step.parameters["ties"] == "rows"
        case "distinct":
            return step.appends
        case "over" | "set_operation":
            return True
    return False


def _not_in_files(before: Pipeline, after: Pipeline) -> list[str]:
    """The columns of a step's output that the rows it has emitted do not have, or have as those of another function."""
    there = same_columns(before, after)
    return [name for name in after.own.output.names if name not in there]


def step_name(pipeline: Pipeline, number: int) -> str:
    """A step in a text for people."""
    return f"step {number + 1} ({pipeline.steps[number].operator})"


def _match_steps(before: Pipeline, after: Pipeline) -> dict[int, int]:
    """For each new step that is kept, the old one."""
    kept: dict[int, int] = {}
    alike: dict[int, int] = {}  # with the same columns
    for number, now in enumerate(after.steps):
        free = [old for old in range(len(before.steps)) if old not in kept.values()]
        free.sort(key=lambda old: old != number)  # of equal steps the one in its place
        for is_read in (True, False):
            same = (old for old in free if _same(before.steps[old], now, alike, is_read=is_read))
            found = next(same, None)
            if found is not None:
                kept[number] = found
                if is_read:
                    alike[number] = found
                break
    return kept


def _same(was: Pipeline, now: Pipeline, alike: dict[int, int], *, is_read: bool) -> bool:
    fed_alike = len(was.inputs) == len(now.inputs) and all(
        old.step is None if new.step is None else alike.get(new.step, -1) == old.step
        for old, new in zip(was.inputs, now.inputs, strict=True)
    )
    return fed_alike and not step_changes(_inner(was), _inner(now), is_read=is_read)


def _inner(step: Pipeline) -> Pipeline:
    """The step without the table and the names that it has as the last of a stream."""
    return replace(step.own, tables=tuple(each for each in step.tables if each.name != KEPT_TABLE))


def _event_times(parent: Manifest, change: StepChange) -> tuple[int | None, ...]:
    """The greatest event time of each input, in the order of the new steps."""
    known = dict(enumerate(parent.event_times_us))
    return tuple(
        known.get(old)
        for _, was in sorted(change.kept.items())
        for old in change.before.inputs_of_stream(was)
        if old is not None
    )


def _statistics(parent: Manifest, change: StepChange, runs: Runs) -> Statistics:
    """The totals go on, but for what the table has; rows in kept tables are estimated, as some run may be overlaid."""
    counts = parent.statistics
    places = {place: number for number, place in enumerate(change.before.input_places)}
    late = [
        parent.late_rows_of(places[change.kept[step], number]) if step in change.kept else 0
        for step, number in change.after.input_places
    ]
    return replace(
        counts,
        state_rows=min(counts.state_rows, _rows(run for table in runs.values() for shard in table for run in shard)),
        total_rows_out=0 if change.after.appends else counts.total_rows_out,
        total_late_rows=sum(late),
        table_rows=0,
        late_rows_by_input=tuple(late) if len(late) > 1 else (),
    )


def _rows(runs: Iterable[RunRef]) -> int:
    of_files = {run.name: max(0, run.rows - 2 * run.tombstones) for run in runs}
    return sum(of_files.values())
