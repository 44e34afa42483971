"""What each of several steps did, as Dagster metadata: a table of all, and numbers of the slowest."""

from collections.abc import Sequence

import dagster as dg

from dagster_ckpt.operators.explained.explanation import explained
from dagster_ckpt.protocol.manifest.manifest import Manifest, StepWork
from dagster_ckpt.protocol.transitions.epoch_statistics import bytes_of

_NOTHING = StepWork(0, 0, 0, 0)
_NO_STATE = "nothing between epochs"
_COLUMNS = [
    dg.TableColumn("step", "int"),
    dg.TableColumn("operator", "string"),
    dg.TableColumn("key", "string"),
    dg.TableColumn("rows_in", "int", description="From sources and from earlier steps, since the last event."),
    dg.TableColumn("rows_out", "int", description="Its changes, since the last event; an update is two."),
    dg.TableColumn("late_rows", "int", description="Since the last event."),
    dg.TableColumn("milliseconds", "int", description="Of its slowest task, in the epoch in which it was slowest."),
    dg.TableColumn("state_bytes", "int", description="The files of its state tables at the epoch."),
    dg.TableColumn("bound", "string", description="What limits its state: `dagster-ckpt explain` has all of it."),
]


def steps_table(manifest: Manifest, work: Sequence[StepWork]) -> dg.TableMetadataValue:
    """A row for each step of the stream; `work` is what each did, empty where no epoch was committed."""
    pipeline = manifest.pipeline
    records = [
        dg.TableRecord(
            {
                "step": number,
                "operator": step.operator,
                "key": ", ".join(step.keys),
                "rows_in": did.rows_in,
                "rows_out": did.rows_out,
                "late_rows": did.late_rows,
                "milliseconds": did.milliseconds,
                "state_bytes": bytes_of(
                    {
                        name: manifest.runs[name]
                        for spec in step.tables
                        if (name := pipeline.stored(number, spec.name)) in manifest.runs
                    }
                ),
                "bound": _NO_STATE if (limit := said.limit) is None else limit.text,
            }
        )
        for number, (step, did, said) in enumerate(
            zip(pipeline.steps, _each(manifest, work), explained(pipeline).steps, strict=True)
        )
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(_COLUMNS))


def slowest_step(manifest: Manifest, work: Sequence[StepWork]) -> dict[str, int]:
    """The number of the slowest of several steps, its time and its rows, each of them a plot; nothing for one step."""
    if not manifest.pipeline.before:
        return {}
    each = _each(manifest, work)
    number = max(range(len(each)), key=lambda step: each[step].milliseconds)
    return {
        "slowest_step": number,
        "slowest_step_milliseconds": each[number].milliseconds,
        "slowest_step_rows_in": each[number].rows_in,
    }


def _each(manifest: Manifest, work: Sequence[StepWork]) -> Sequence[StepWork]:
    return work or [_NOTHING] * len(manifest.pipeline.steps)
