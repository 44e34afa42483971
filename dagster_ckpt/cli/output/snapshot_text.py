"""A snapshot of several streams, as text and as JSON."""

from rich.markup import escape

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.output.text_layout import new_table, say
from dagster_ckpt.cli.request import Document
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import EpochInfo, Snapshot
from dagster_ckpt.history.info.epoch_info import moment_of


def show_snapshot(consistency: str, snapshot: Snapshot) -> None:
    """The chosen epoch of each stream, and what was left out."""
    now = moment_of(SystemClock().now_ms() * 1_000)
    table = new_table("stream", ">epoch", "committed (UTC)", "ago", ">rows so far", "")
    for info in map(snapshot.info, snapshot.streams):
        table.add_row(
            f"[bold]{escape(info.stream)}[/]",
            str(info.epoch),
            amounts.moment(info.committed_at),
            f"[dim]{amounts.ago(info.committed_at, now)}[/]",
            amounts.count(info.total_rows_in),
            _standing(info),
        )
    if table.row_count:
        say(table)
    for name in snapshot.left_out:
        say(f"[bold]{escape(name)}[/] is left out: its table is still being created. --include-creating shows it.")
    if consistency == "aligned" and table.row_count > 1:
        say("[dim]Each has consumed exactly the shown epochs of its upstreams.[/]")


def snapshot_document(consistency: str, snapshot: Snapshot) -> Document:
    """The chosen epoch of each stream, and what was left out."""
    chosen = map(snapshot.info, snapshot.streams)
    return {
        "consistency": consistency,
        "streams": [
            {"stream": info.stream, "epoch": info.epoch, "committed_at": info.committed_at, "current": info.current}
            for info in chosen
        ],
        "left_out": list(snapshot.left_out),
    }


def _standing(info: EpochInfo) -> str:
    return "[green]current[/]" if info.current else ""
