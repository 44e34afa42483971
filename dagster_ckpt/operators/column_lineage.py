"""Which columns of its inputs the columns of a stream's table are made from."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from dagster_ckpt.operators import over, process
from dagster_ckpt.operators.aggregates.grouped_state import aggregations_of
from dagster_ckpt.operators.joins.appending_join import AppendingJoin
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.operator import event_times_of
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.operators.rows import top
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.shared.ranked.order_by import order_columns
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

InputColumn = tuple[int, str]
"""The number of an input, from 0, and one of its columns."""

Origins = Mapping[str, Sequence[InputColumn]]
"""For each column those that it is made from. One that is not there is made from something unknown."""

Work = Mapping[str, Sequence[str]] | None
"""For each column of an input those that Spark computes it from, before the step. None: the rows are as they were read.

One that is not there is computed from something unknown.
"""


def columns_read(pipeline: Pipeline) -> Origins:  # noqa: C901  (a case for each kind)
    """For each column of the table the input columns whose values it has, or is computed from.

    A count of rows has none. Columns that only select rows (in a condition, an order, a watermark) do not count. Empty
    for a process function: only the user's code knows. Raises as `from_pipeline` does.
    """
    if pipeline.operator == process.NAME:
        return {}
    if pipeline.columns:
        of_operator = columns_read(pipeline.own)
        return {name: of_operator[own] for own, name in pipeline.columns if own in of_operator}
    parameters: Mapping[str, Any] = pipeline.parameters
    read: dict[str, Sequence[InputColumn]] = {name: [(0, name)] for name in pipeline.output.names}
    step = from_pipeline(pipeline)
    operator = step if isinstance(step, AppendOnly) else step.operator
    if isinstance(operator, AppendingJoin | RegularJoin):
        for column in operator.output.columns:
            sides = enumerate(column.of_sides)
            read[column.field.name] = [(number, name) for number, name in sides if name is not None]
    elif isinstance(operator, UnionAll) or (isinstance(operator, SetOperation) and operator.kind.is_of_both):
        read = {name: [(0, name), (1, name)] for name in pipeline.output.names}
    elif "aggregates" in parameters:
        for name, one in aggregations_of(parameters).items():
            read[name] = [(0, column) for column in (one.column, one.other, *(one.columns or ())) if column is not None]
    elif pipeline.operator == top.NAME and parameters["rank"] is not None:
        by = order_columns(top.NAME, parameters["by"], pipeline.inputs[0].schema)
        read[parameters["rank"]] = [(0, column.name) for column in by]
    elif isinstance(operator, OverPartition):
        read.update(_of_functions(operator))
    if parameters.get("window") is not None:
        read[WINDOW_START] = read[WINDOW_END] = [
            (number, time) for number, time in enumerate(event_times_of(pipeline)) if time is not None
        ]
    return read


def columns_of_sources(pipeline: Pipeline, work: Sequence[Sequence[Work]]) -> Origins:
    """`columns_read` through all steps: the columns of `Pipeline.source_inputs` that the table's are made from.

    `work` is that of each input of each step; no origin is known if it is that of other steps. Raises as
    `from_pipeline` does.
    """
    if [len(step.inputs) for step in pipeline.steps] != [len(of_step) for of_step in work]:
        return {}
    tables = list[Origins]()
    for number, step in enumerate(pipeline.steps):
        places = zip(step.inputs, pipeline.inputs_of_stream(number), work[number], strict=True)
        tables.append(_compose(columns_read(step), [_of_input(step, *place, tables) for place in places]))
    return tables[-1]


def _of_input(step: Pipeline, read: InputSpec, source: int | None, work: Work, tables: Sequence[Origins]) -> Origins:
    """The origins of an input's columns: of a source, by its number, or of the table of an earlier step.

    The work has the names of the code, which a step with state may know by older ones (`Pipeline.columns`).
    """
    done: dict[str, Sequence[str]] = {name: (name,) for name in read.schema.names}
    if work is not None:
        shown = {name: step.name_of(name) for name in done}
        known = {name: new if new in work else name for name, new in shown.items()}
        done = {name: work[new] for name, new in known.items() if new in work}
    number = 0 if source is None else source
    columns = {name: [(number, each) for each in before] for name, before in done.items()}
    return columns if read.step is None else _compose(columns, [tables[read.step]])


def _compose(columns: Origins, inputs: Sequence[Origins]) -> Origins:
    """The columns' origins in what the inputs are made from."""
    found = dict[str, Sequence[InputColumn]]()
    for name, read in columns.items():
        origins = [of_input for number, each in read if (of_input := inputs[number].get(each)) is not None]
        if len(origins) == len(read):
            found[name] = tuple(dict.fromkeys(chain.from_iterable(origins)))
    return found


def _of_functions(operator: OverPartition) -> Mapping[str, Sequence[InputColumn]]:
    """A rank is computed from the order columns, any other function from its own, and a count of rows from none."""
    ranked = [(0, column.name) for column in operator.tree.order.by]
    read = dict[str, Sequence[InputColumn]]()
    for value in operator.values:
        column, kind = value.function.column, value.function.function
        read[value.name] = [(0, column)] if column is not None else [] if kind is over.Function.COUNT else ranked
    return read
