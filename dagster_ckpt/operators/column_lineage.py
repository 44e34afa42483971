"""Which columns of its inputs the columns of a stream's table are made from."""

from collections.abc import Mapping, Sequence
from itertools import chain

from dagster_ckpt.operators import process
from dagster_ckpt.operators.operator import InputColumn, Origins
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

Work = Mapping[str, Sequence[str]] | None
"""For each column of an input those that Spark computes it from, before the step. None: the rows are as they were read.

One that is not there is computed from something unknown.
"""


def columns_read(pipeline: Pipeline) -> Origins:
    """For each column of the table the input columns that it is made from (`Operator.origins`).

    Empty for a process function: only the user's code knows. Raises as `from_pipeline` does.
    """
    return {} if pipeline.operator == process.NAME else from_pipeline(pipeline).origins


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
