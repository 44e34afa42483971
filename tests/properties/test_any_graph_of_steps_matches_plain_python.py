"""Random graphs of steps: after each epoch every step's changes add up to what plain Python makes of all its rows."""

import math
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dagster_ckpt.operators.explained.explanation import explain_pipeline
from dagster_ckpt.operators.explained.kept import NUMBER_OF_KEYS, Bound
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.step_changes import gives_rows
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag
from tests.properties.random_graphs import HISTORIES, SOURCE, STEPS, Graph, Rows, Step, graphs, steps_alone
from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Changing, Row, bag_of, spelled
from tests.worlds.examples import examples

History = list[list[tuple[str, int, Row]]]
ROWS_MAX = 300
"""A world ends when a step has more rows: a few rows joined again and again are soon thousands."""


class Played:
    """A step at work. `rows` are those that its changes so far make."""

    def __init__(self, step: Step, tasks: Any, memory_bytes: int, *, is_last: bool) -> None:
        self.step = step
        self.one = Changing(step.operator.with_table() if is_last else step.operator, tasks, memory_bytes)
        [self.explained] = explain_pipeline(self.one.pipeline).steps
        self.is_last = is_last
        self.rows = list[Row]()

    def epoch(
        self, batches: Sequence[tuple[int, pa.Table]], so_far: list[list[Row]], new: list[list[Row]]
    ) -> list[Row]:
        """The step's changes, checked."""
        wanted = self.step.model(new[0], self.rows) if self.step.of_epoch else self.step.model(*so_far)
        changes = self.one.epoch(*batches)
        appends = self.step.operator.pipeline.appends
        assert not appends or all(change[KIND.name] == "insert" for change in changes)
        self.rows = after(self.rows, changes)
        self.check(self.rows, wanted)
        key = None if appends else row_key(self.step.operator.pipeline)
        if key is not None:
            keys = bag_of({name: row[name] for name in key} for row in self.rows)
            assert max(keys.values(), default=1) == 1, f"the row key identifies each row. {key=}"
        if self.is_last and change_log_table(self.one.operator) is not None:
            self.check(self.one.table(), wanted)
        elif not self.is_last and gives_rows(self.step.operator.pipeline):
            self.check(self.worked_again(), wanted)
        self.check_limits(so_far)
        return [
            {name: value for name, value in change.items() if name != KIND.name or not appends} for change in changes
        ]

    def worked_again(self) -> list[Row]:
        """What the operator makes of the rows that its state has, from nothing."""
        operator = self.one.operator
        inner = operator.operator if isinstance(operator, OperatorStep) else operator
        again = Changing(inner, rebuilds=False)
        changes = again.epoch(*inner.rows_kept(lambda table: iter([self.one.live(table)])))
        assert {change[KIND.name] for change in changes} <= {"insert"}
        names = self.step.operator.pipeline.output.names
        return [{name: change[name] for name in names} for change in changes]

    def check_limits(self, so_far: list[list[Row]]) -> None:
        """Check the bounds of `explain_pipeline` against the state; `so_far` has the current rows of each input."""
        for kept in self.explained.keeps:
            held, limit = self.one.live(kept.table).num_rows, kept.limit
            most: Mapping[Bound, int] = {
                Bound.EPOCH: 0,
                Bound.CONSTANT: int(re.sub("[^0-9]", "", limit.text) or 1),
                Bound.INPUT: held if any(so_far) else 0,
            }
            assert held <= most.get(limit.bound, held), f"{kept=}"
            if limit == NUMBER_OF_KEYS and len(so_far) == 1:
                assert held <= len({tuple(row[key] for key in self.one.pipeline.keys) for row in so_far[0]}), f"{kept=}"

    def check(self, found: list[Row], wanted: list[Row]) -> None:
        inexact = self.step.inexact
        if not inexact:
            assert bag_of(found) == bag_of(wanted)
            return
        keys = [*self.step.operator.pipeline.keys, *({"window_start"} & {*self.step.operator.pipeline.output.names})]
        sides = [{spelled({key: row[key] for key in keys}): row for row in rows} for rows in (found, wanted)]
        assert len(sides[0]) == len(found)
        assert sides[0].keys() == sides[1].keys()
        for key, row in sides[0].items():
            other = sides[1][key]
            assert all(
                near(row[name], other[name]) if name in inexact else repr(row[name]) == repr(other[name])
                for name in row
            )


def near(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, rel_tol=1e-12, abs_tol=1e-12) or (math.isnan(found) and math.isnan(wanted))


def after(rows: Sequence[Row], changes: Sequence[Row]) -> list[Row]:
    """The rows after the changes of an epoch, which come in any order."""
    found = dict[str, list[Row]]()
    for row in rows:
        found.setdefault(spelled(row), []).append(row)
    bare = [({name: value for name, value in each.items() if name != KIND.name}, each[KIND.name]) for each in changes]
    for row, kind in bare:
        if kind in {"insert", "update_postimage"}:
            found.setdefault(spelled(row), []).append(row)
    for row, kind in bare:
        if kind in {"delete", "update_preimage"}:
            assert found.get(spelled(row)), f"a row goes that is not there. {row=}"
            found[spelled(row)].pop()
    return [row for its in found.values() for row in its]


def batches_of(number: int, rows: Rows, changes: list[Row], size: int, random: Random) -> list[tuple[int, pa.Table]]:
    changes = rows.of(changes)
    random.shuffle(changes)
    cut = [changes[start : start + size] for start in range(0, len(changes), size)]
    return [(number, pa.Table.from_pylist(each, schema=rows.spec.schema)) for each in cut]


def play(graph: Graph, histories: Sequence[History], tasks: Any, memory_bytes: int, size: int, random: Random) -> None:
    bags = [Bag(SOURCE) for _ in graph.changing]
    last = len(graph.steps) - 1
    played = [Played(step, tasks, memory_bytes, is_last=at == last) for at, step in enumerate(graph.steps)]
    for number in range(max(map(len, histories))):
        changes = list[list[Row]]()
        for bag, changing, history in zip(bags, graph.changing, histories, strict=False):
            steps = history[number] if number < len(history) else []
            steps = steps if changing else [("insert", at, row) for _, at, row in steps]
            rows = [row for batch in bag.epoch(steps, 100, random) for row in batch.to_pylist()]
            changes.append(rows if changing else [{name: row[name] for name in SOURCE.names} for row in rows])
        for one in played:
            so_far = [*(bag.rows for bag in bags), *(each.rows for each in played)]
            inputs = one.step.inputs
            batches = [
                each for at, its in enumerate(inputs) for each in batches_of(at, its, changes[its.origin], size, random)
            ]
            random.shuffle(batches)
            all_rows = [its.of(so_far[its.origin]) for its in inputs]
            changes.append(one.epoch(batches, all_rows, [its.of(changes[its.origin]) for its in inputs]))
            if len(one.rows) > ROWS_MAX:
                return


WORLDS = st.sampled_from([(ONE_TASK, 1 << 28), (TWO_TASKS, 1 << 28), (TWO_TASKS, 1 << 12)])


@pytest.mark.parametrize("kind", STEPS)
@examples(40, 4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), HISTORIES, WORLDS, SIZES, RANDOMS)
def test_the_sum_of_what_comes_out_of_a_step_is_the_query_over_the_sum_of_what_came_in(
    kind: str, data: st.DataObject, histories: list[History], world: Any, size: int, random: Random
) -> None:
    tasks, memory_bytes = world
    play(data.draw(steps_alone(kind)), histories, tasks, memory_bytes, size, random)


@examples(100, 12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    graphs(),
    HISTORIES,
    WORLDS,
    SIZES,
    RANDOMS,
)
def test_after_every_epoch(graph: Graph, histories: list[History], world: Any, size: int, random: Random) -> None:
    tasks, memory_bytes = world
    play(graph, histories, tasks, memory_bytes, size, random)
