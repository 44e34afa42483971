"""`show --watch`: a screen that follows a live stream."""

from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from dagster_ckpt.cli.output import amounts, writer_text
from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.history import EpochInfo, StreamHistory, WriterInfo
from dagster_ckpt.protocol.lease import EpochProgress
from dagster_ckpt.quantities import duration

_LOOK_MS = 2_000
"""A look is a few small reads; the progress it shows is as old as the lease's last heartbeat anyhow."""
_BAR_CHARS = 24


def follow(history: StreamHistory, clock: Clock | None = None) -> None:
    """Show the stream's current status until its writer has ended, or until Ctrl-C."""
    clock = clock or SystemClock()
    watch = history.watch_writer()
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                writer = watch.look()
                now = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)
                live.update(screen(history.latest(), writer, now), refresh=True)
                if writer.ended:
                    return
                clock.sleep_ms(_LOOK_MS)
        except KeyboardInterrupt:
            return


def screen(info: EpochInfo, writer: WriterInfo, now: datetime) -> Table:
    """The current epoch, the writer, and the progress of the next epoch."""
    lines = Table.grid(padding=(0, 3, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row("stream", f"[bold]{escape(info.stream)}[/]")
    lines.add_row("epoch", f"{info.epoch}, {amounts.ago(info.committed_at, now)}")
    if info.epoch:
        changes = amounts.count(info.rows_out, "change")
        lines.add_row("rows", f"{amounts.count(info.rows_in)} in, {changes} out, in {duration(info.epoch_ms)}")
    epochs = amounts.count(info.total_epochs, "epoch")
    lines.add_row("so far", f"{amounts.count(info.total_rows_in, 'row')} in {epochs}")
    if info.table_rows is not None:
        lines.add_row("table", amounts.count(info.table_rows, "row"))
    lines.add_row("state", f"{amounts.count(info.state_rows, 'row')}, {amounts.size(info.state_bytes)}")
    if info.event_time is not None:
        lines.add_row("event time", f"{amounts.moment(info.event_time)} UTC")
    lines.add_row("writer", writer_text.in_words(writer))
    if not writer.ended:
        lines.add_row("in work", "no epoch, or one that has just begun" if writer.work is None else _bar(writer.work))
    if writer.work is not None and writer.work.slowest:
        slowest = f"{escape(writer.work.slowest)}, for {duration(writer.work.slowest_ms)}"
        lines.add_row("slowest", slowest)
    return lines


def _bar(work: EpochProgress) -> RenderableType:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(
        f"epoch {work.epoch}",
        ProgressBar(total=max(1, work.tasks), completed=work.tasks_done, width=_BAR_CHARS),
        f"{amounts.count(work.tasks_done)} of {amounts.count(work.tasks, 'task')}, {duration(work.elapsed_ms)}",
    )
    return line
