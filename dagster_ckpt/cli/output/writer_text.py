"""A stream's writer, as text and as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime

from rich.markup import escape

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.output.text_layout import say
from dagster_ckpt.cli.request import Document
from dagster_ckpt.history import WriterInfo
from dagster_ckpt.history.info.writer_info import WriterStatus
from dagster_ckpt.protocol.lease import EpochProgress, Life
from dagster_ckpt.quantities import duration

_LIVES = {
    Life.BEATING: "at work",
    Life.CLOSED: "ended",
    Life.DEAD: "[red]dead: its process is gone[/]",
    Life.LAPSED: "[red]silent: taken for dead[/]",
}


_ENDINGS = {
    "input_done": "it read all input",
    "run_for": "its run_for was over",
    "stopped": "it was stopped",
}
"""Why a writer ended, where the lease has a code for it; other reasons are sentences."""


_STATUSES = {
    WriterStatus.LIVE: "[green]live[/]",
    WriterStatus.DEAD: "[red]dead[/]",
    WriterStatus.INTERRUPTED: "[yellow]interrupted[/]",
    WriterStatus.REFUSED: "[red]refused[/]",
}


def status(writer: WriterInfo, now: datetime) -> str:
    """`live`, `ended`, or `silent for 3 h`."""
    found = writer.status(now)
    if found is WriterStatus.SILENT and writer.beat_at is not None:
        return f"[red]silent for {amounts.ago(writer.beat_at, now).removesuffix(' ago')}[/]"
    return _STATUSES.get(found, str(found))


def in_words(writer: WriterInfo, now: datetime | None = None) -> str:
    """`Dagster run 4f2a on host-3 (pid 812), at work`; at `now`, also when its last heartbeat was."""
    if not writer.is_known:
        return f"unknown, term {writer.term}"
    run = f"Dagster run {escape(writer.dagster_run_id)}" if writer.dagster_run_id else "no Dagster run"
    why = f": {escape(_ENDINGS.get(writer.closed, writer.closed))}" if writer.closed else ""
    does = _LIVES[writer.life]
    if writer.life is Life.BEATING and writer.beat_at is not None and now is not None:
        is_live = writer.status(now) is WriterStatus.LIVE
        beat = f"its last heartbeat was {amounts.ago(writer.beat_at, now)}"
        does = f"{does}, {beat}" if is_live else f"[red]silent: {beat}[/]"
    return f"{run} on {escape(writer.host)} (pid {writer.pid}), {does}{why}"


def work_in_words(work: EpochProgress) -> str:
    """`epoch 42: 37 of 200 tasks done in 12 s`, and the slowest of the others."""
    slowest = f"; slowest: {escape(work.slowest)}, {duration(work.slowest_ms)}" if work.slowest else ""
    took = duration(work.elapsed_ms)
    return f"epoch {work.epoch}: {work.tasks_done:,} of {amounts.count(work.tasks, 'task')} done in {took}{slowest}"


def waiting(stream: str, show: Callable[[str], None]) -> Callable[[WriterInfo], None]:
    """A callback that shows the progress of a draining writer."""

    def show_progress(writer: WriterInfo) -> None:
        work = "no epoch in work" if writer.work is None else work_in_words(writer.work)
        show(f"{escape(stream)} after epoch {writer.epoch}, {work}")

    return show_progress


def show_drain_requests(drained: Mapping[str, WriterInfo | None]) -> None:
    """The writers that were asked to end; None for a stream without one."""
    for stream, writer in drained.items():
        if writer is None:
            say(f"[bold]{escape(stream)}[/] has no live writer: there is nothing to drain.")
        else:
            say(f"[bold]{escape(stream)}[/] ends at its next epoch: {in_words(writer)}.")


def show_ends(drained: Mapping[str, WriterInfo | None]) -> None:
    """The writers that have ended, and their last epochs."""
    for stream, writer in drained.items():
        if writer is None:
            say(f"[bold]{escape(stream)}[/] has no live writer: there is nothing to drain.")
        else:
            say(f"[bold]{escape(stream)}[/] has ended at epoch {writer.epoch}: {in_words(writer)}.")


def drains(drained: Mapping[str, WriterInfo | None]) -> Document:
    """The current writer of each stream; null for a stream without one."""
    return {
        "streams": [
            {"stream": stream, "writer": None if writer is None else asdict(writer)}
            for stream, writer in drained.items()
        ]
    }
