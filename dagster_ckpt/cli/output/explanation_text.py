"""What the steps of a stream keep, how much of it there is, and what limits it, for people."""

from collections.abc import Iterable, Mapping

from rich.markup import escape

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.output.text_layout import say
from dagster_ckpt.history import EpochInfo
from dagster_ckpt.operators.explained.explanation import LABEL_CHARS, ExplainedStep, Explanation
from dagster_ckpt.operators.explained.kept import Bound
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.transitions.epoch_statistics import distinct_files, total_bytes
from dagster_ckpt.quantities import span


def show_explanation(info: EpochInfo, manifest: Manifest, explanation: Explanation) -> None:
    """The watermark, all state, and a block for each step."""
    say(f"[bold]{escape(info.stream)}[/] epoch {info.epoch}\n")
    for label, text in _facts(info, manifest, explanation):
        say(f"[dim]{label.ljust(LABEL_CHARS + 2)}[/]{text}")
    for step in explanation.steps:
        name = f"step {step.number}  " if len(explanation.steps) > 1 else ""
        say(f"\n[bold]{name}[/]{escape(step.operator)}")
        growing = {kept.limit.text for kept in step.keeps if kept.limit.bound.grows}
        for label, text in step.lines(_sizes(step, manifest)):
            grows = label == "bound" and text in growing
            said = f"[yellow]{escape(text)}[/]" if grows else f"[dim]{text}[/]" if label == "size" else escape(text)
            say(f"  [dim]{label.ljust(LABEL_CHARS)}[/]{said}")


def _facts(info: EpochInfo, manifest: Manifest, explanation: Explanation) -> Iterable[tuple[str, str]]:
    waits = any(kept.limit.bound is Bound.WATERMARK for step in explanation.steps for kept in step.keeps)
    if info.watermark is not None:
        yield "watermark", f"{amounts.moment(info.watermark)} UTC{_behind(manifest)}"
    elif waits:
        yield "watermark", "none yet: no state has gone"
    if manifest.pipeline.all_tables:
        yield "state", f"{amounts.count(info.state_rows, 'row')}, {amounts.size(info.state_bytes)}"


def _behind(manifest: Manifest) -> str:
    """How far the watermark is behind the newest row."""
    times = [each for each in manifest.event_times_us if each is not None]
    if manifest.watermark_us is None or not times or max(times) < manifest.watermark_us:
        return ""
    return f", {span(max(times) - manifest.watermark_us)} behind the newest event time"


def _sizes(step: ExplainedStep, manifest: Manifest) -> Mapping[str, str]:
    """How much is in each state table; those that are empty between epochs are not there."""
    whole, sizes = total_bytes(manifest.runs), dict[str, str]()
    for kept in step.keeps:
        name = manifest.pipeline.name_in_runs(step.number, kept.table)
        files = distinct_files(manifest.runs.get(name, ()))
        if files:
            rows, size = sum(run.rows for run in files), sum(run.bytes for run in files)
            # Rows of files are more than rows of the table: an updated one is in several until they are merged.
            where = f"{amounts.count(rows, 'row')} in {amounts.count(len(files), 'file')} of table {escape(kept.table)}"
            sizes[kept.table] = f"{amounts.size(size)}, {size / whole:.0%} of the state; {where}"
        elif kept in step.lasting:
            sizes[kept.table] = f"nothing yet in table {escape(kept.table)}"
    return sizes
