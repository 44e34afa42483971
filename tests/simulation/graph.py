"""Streams of several steps: what each keeps, in plain Python, and how its changes reach the next.

    chain      rows -> cells -> total
    diamond    rows -> cells -> odd -> total, cells -> total

A cell is the total of a key's rows of one class, under the hash of the class: the steps have their rows in different
shards. `odd` are the totals of each key over its odd classes. `total` is the table of a stream of one step. Its steps
emit by how much each of their totals changes.

Where the code of a stream changes, so does its shape, or its last step, which multiplies what it adds (`TIMES`).
"""

from dataclasses import replace
from functools import lru_cache
from typing import Literal

from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec
from tests.simulation.job import CELLS, CLASSES, KEYED, TABLE, Row, Sums, batch, cell_of, shard_of
from tests.worlds.manifests import ROWS

Shape = Literal["chain", "diamond"]

CELL, ODD = "cells", "odd"
CELL_TABLE, ODD_TABLE = f"0.{CELL}", f"1.{ODD}"


def _step(table: str, *inputs: int) -> Pipeline:
    specs = tuple(InputSpec((), ROWS, step) for step in inputs) or KEYED.inputs
    return replace(KEYED, inputs=specs, tables=(StateTableSpec(table, ROWS, KEYED.keys),))


PIPELINES: dict[Shape, Pipeline] = {
    "chain": replace(_step(TABLE, 0), before=(_step(CELL),)),
    "diamond": replace(_step(TABLE, 0, 1), before=(_step(CELL), _step(ODD, 0))),
}


TIMES = "times"
"""The parameter of the last step that says by how much it multiplies."""


def with_last_step(shape: Shape, times: int) -> Pipeline:
    """The steps of that shape, of which the last multiplies."""
    pipeline = PIPELINES[shape]
    return replace(pipeline, parameters={**pipeline.parameters, TIMES: times})


def times_of(step: Pipeline) -> int:
    """By how much a step multiplies what it adds."""
    return int(str(step.parameters.get(TIMES, 1)))


def class_of(amount: int, run: int) -> int:
    """The class of a row. What comes before the first step is not deterministic: another run gives another one."""
    return (amount + run) % CLASSES


def key_of(cell: str) -> str:
    return cell.partition(".")[0]


def is_odd(cell: str) -> bool:
    return int(cell.partition(".")[2]) % 2 == 1


def added_to_cells(rows: tuple[Row, ...], run: int = 0) -> Sums:
    """By how much these rows change each cell."""
    more: Sums = {}
    for key, amount in rows:
        cell = cell_of(key, class_of(amount, run))
        more[cell] = more.get(cell, 0) + amount
    return more


def inflow(pipeline: Pipeline, step: int, emitted: dict[int, Sums]) -> Sums:
    """What reaches a step of the changes of those before it: by how much each of its totals changes."""
    more: Sums = {}
    for source in pipeline.steps[step].inputs:
        assert source.step is not None, "the first step alone reads rows"
        for name, amount in emitted[source.step].items():
            if name not in CELLS:
                key = name
            elif step == len(pipeline.before) > 1 and is_odd(name):
                continue  # it comes by way of `odd`
            elif step < len(pipeline.before) and not is_odd(name):
                continue
            else:
                key = key_of(name)
            more[key] = more.get(key, 0) + amount
    return more


def of_shard(sums: Sums, shard: int, shards: int) -> Sums:
    return {name: amount for name, amount in sums.items() if shard_of(name, shards) == shard}


@lru_cache(maxsize=1024)
def cells_after(batches: int) -> Sums:
    """The cells after that many batches. Not to be changed."""
    if batches == 0:
        return {}
    cells = dict(cells_after(batches - 1))
    for cell, amount in added_to_cells(batch(batches)).items():
        cells[cell] = cells.get(cell, 0) + amount
    return cells


def tables_after(batches: int, tables: set[str]) -> dict[str, Sums]:
    """The tables of the steps before the last, as many as there are of these."""
    cells = cells_after(batches)
    odd: Sums = {}
    for cell, amount in cells.items():
        if is_odd(cell):
            odd[key_of(cell)] = odd.get(key_of(cell), 0) + amount
    return {name: table for name, table in ((CELL_TABLE, cells), (ODD_TABLE, odd)) if name in tables}
