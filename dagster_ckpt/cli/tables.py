"""What people read: tables with units, relative times and thousand separators. Programs take `documents`."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dagster_ckpt.cli import plain
from dagster_ckpt.cli.operators import in_words
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import EpochInfo, Verification
from dagster_ckpt.history.choice import ranges
from dagster_ckpt.history.verification import Finding
from dagster_ckpt.protocol.manifest import ChangeRef, Manifest, RunRef, SourcePosition

_ROWS = 50
_CELL_CHARS_MAX = 60
_LINE_CHARS_MAX = 100_000
_NOTHING = "[dim]-[/]"


def streams(store: str, newest: Sequence[EpochInfo]) -> None:
    """Every stream with its current epoch."""
    now = _now()
    table = _table("stream", ">epoch", "committed", ">rows so far", ">state rows", ">state", "event time (UTC)")
    for info in newest:
        table.add_row(
            f"[bold]{escape(info.stream)}[/]",
            str(info.epoch),
            plain.ago(info.committed_at, now),
            plain.count(info.total_rows_in),
            plain.count(info.state_rows),
            plain.size(info.state_bytes),
            _NOTHING if info.event_time is None else plain.moment(info.event_time),
        )
    if table.row_count:
        _print(table)
    else:
        _print(f"No streams in {escape(store)} yet.")


def epochs(stream: str, retained: Sequence[EpochInfo]) -> None:
    """The retained epochs of a stream, newest first."""
    now = _now()
    table = _table(
        ">epoch", "committed (UTC)", "", ">rows in", ">changes", ">late", ">took", ">state rows", ">state", ""
    )
    for info in retained:
        table.add_row(
            str(info.epoch),
            plain.moment(info.committed_at),
            f"[dim]{plain.ago(info.committed_at, now)}[/]",
            plain.count(info.rows_in),
            plain.count(info.rows_out),
            plain.count(info.late_rows) if info.late_rows else _NOTHING,
            plain.duration(info.epoch_ms),
            plain.count(info.state_rows),
            plain.size(info.state_bytes),
            _standing(info),
        )
    _print(table)
    _print(f"[dim]{plain.count(len(retained), 'epoch')} of {escape(stream)} can be read.[/]")


def read(info: EpochInfo, table: pa.Table, limit: int | None) -> None:
    """The first `limit` rows of the stream's table, a screenful where nobody said how many."""
    limit = _ROWS if limit is None else limit
    numbers = [
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
        for column in table.schema
    ]
    shown = _table(*(f">{name}" if number else name for name, number in zip(table.column_names, numbers, strict=True)))
    columns = [column.to_pylist() for column in table.slice(0, limit).columns]
    for row in zip(*columns, strict=True):
        shown.add_row(*map(_cell, row))
    if shown.columns:
        _print(shown)
    of, more = (f"{plain.count(limit)} of ", " --limit N prints more.") if table.num_rows > limit else ("", "")
    rows = plain.count(table.num_rows, "row")
    _print(f"[dim]{of}{rows} of {escape(info.stream)} at epoch {info.epoch}.{more}[/]")


def show(info: EpochInfo, manifest: Manifest) -> None:
    """An epoch, and the manifest that shows it."""
    facts = list(_facts(info, manifest, _now()))
    width = max(len(name) for name, _ in facts) + 3
    _print(f"[bold]{escape(info.stream)}[/] epoch {info.epoch}  {_standing(info)}\n")
    for name, value in facts:
        _print(f"[dim]{escape(name.ljust(width))}[/]{value}" if name else "")


def verify(store: str, verified: Sequence[Verification]) -> None:
    """What was read of each stream, then every damaged object and the way back."""
    table = _table("stream", ">epoch", ">manifests", ">state files", ">change logs", ">indexes", ">pins", ">read", "")
    for each in verified:
        counts = (each.manifests, each.runs, each.changes, each.index_objects, each.pins)
        table.add_row(
            f"[bold]{escape(each.stream)}[/]",
            _NOTHING if each.epoch is None else str(each.epoch),
            *(plain.count(count) for count in counts),
            plain.size(each.bytes),
            "[green]whole[/]" if each.whole else f"[red]{plain.count(len(each.findings), 'damaged object')}[/]",
        )
    if not table.row_count:
        _print(f"No streams in {escape(store)} yet.")
        return
    _print(table)
    for each in verified:
        if not each.whole:
            _print_damage(each)


def rollback(info: EpochInfo) -> None:
    """The epoch that the stream shows now."""
    _print(f"[bold]{escape(info.stream)}[/] shows epoch {info.epoch}; its next Dagster run goes on from there.")


def _print_damage(verified: Verification) -> None:
    _print(f"\n[bold]{escape(verified.stream)}[/]")
    table = _table("damaged object", "what is wrong", "needed by")
    for finding in verified.findings:
        table.add_row(escape(finding.object), escape(finding.wrong), escape(_needed_by(finding)))
    _print(table)
    if verified.command is None:
        _print(f"The current epoch, {verified.epoch}, is whole.")
    elif verified.good_epoch is None:
        _print("No retained epoch is whole: restore the objects from a backup, or begin anew:")
    else:
        _print(f"The newest epoch that is whole is {verified.good_epoch}. To go back to it:")
    if verified.command is not None:
        _print(f"    {escape(verified.command)}")


def _needed_by(finding: Finding) -> str:
    epochs = [f"epoch {ranges(finding.epochs)}"] if finding.epochs else []
    return ", ".join([*epochs, *finding.pins]) or "nothing that can be read"


def _facts(info: EpochInfo, manifest: Manifest, now: datetime) -> Iterable[tuple[str, str]]:
    pipeline, owner = manifest.pipeline, manifest.owner
    yield (
        "committed" if info.epoch else "opened",
        f"{plain.moment(info.committed_at)} UTC, {plain.ago(info.committed_at, now)}",
    )
    yield "manifest", f"version {info.version}, term {manifest.term}, {manifest.kind}"
    if info.epoch:
        late = f", {plain.count(info.late_rows)} too late" if info.late_rows else ""
        yield "rows", f"{plain.count(info.rows_in)} in, {plain.count(info.rows_out, 'change')} out{late}"
        yield "took", plain.duration(info.epoch_ms)
        if info.merged_rows:
            waited = f", intake waited {plain.duration(info.stall_ms)}" if info.stall_ms else ""
            yield "compaction", f"{plain.count(info.merged_rows, 'row')} merged{waited}"
    if info.event_time is not None:
        yield "event time", f"{plain.moment(info.event_time)} UTC"
    if info.watermark is not None:
        yield "watermark", f"{plain.moment(info.watermark)} UTC"
    yield "", ""
    yield "operator", escape(in_words(pipeline))
    if pipeline.keys:
        yield "key", escape(", ".join(pipeline.keys))
    yield "columns", _columns(pipeline.output)
    yield "shards", str(manifest.shards)
    for spec in pipeline.tables:
        yield f"state {spec.name}", _state(manifest.runs.get(spec.name, ()))
    yield "change log", _files(info.rows_out, manifest.changes)
    table_files = sum(index.entries for index in manifest.files.index) + len(manifest.files.tail)
    if table_files:
        yield "table", plain.count(table_files, "file")
    yield "", ""
    for position in manifest.sources:
        yield "source", _source(position)
    all_late = manifest.statistics.total_late_rows
    too_late = f", {plain.count(all_late)} too late" if all_late else ""
    yield "so far", f"{plain.count(info.total_rows_in, 'row')} in {plain.count(info.total_epochs, 'epoch')}{too_late}"
    location = f", code location {owner.location}" if owner.location else ""
    yield "owner", escape(f"asset {owner.asset_key} of Dagster instance {owner.instance}{location}")
    yield "stream", manifest.uuid


def _state(shards: Sequence[Sequence[RunRef]]) -> str:
    files = {run.path: run for shard in shards for run in shard}.values()  # several shards may share a file
    longest = max(map(len, shards), default=0)
    return f"{_files(sum(file.rows for file in files), files)}, at most {longest} in a shard"


def _files(rows: int, files: Collection[RunRef | ChangeRef]) -> str:
    size = sum(file.bytes for file in files)
    return f"{plain.count(rows, 'row')}, {plain.size(size)} in {plain.count(len(files), 'file')}"


def _source(position: SourcePosition) -> str:
    seen = sum(index.entries for index in position.files.index) + len(position.files.tail)
    files = f", {plain.count(seen, 'file')} seen" if seen else ""
    at = "no position yet" if position.current is None else f"at {position.current}"
    return escape(f"{position.source.format} {position.source.address}{files}, {at}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{escape(column.name)} [dim]{escape(str(column.type))}[/]" for column in schema)


def _standing(info: EpochInfo) -> str:
    if info.current:
        return "[green]current[/]"
    return "[dim]abandoned[/]" if info.abandoned else ""


def _cell(value: object) -> str:
    if value is None:
        return "[dim]null[/]"
    text = _number(value) if isinstance(value, float) else str(value)
    if not text.isprintable():
        text = repr(text)[1:-1]  # data must not move the cursor of whoever looks at it
    return escape(text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…")


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def _table(*headers: str) -> Table:
    """Columns by their headers; one that begins with `>` is set to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        right = header.startswith(">")
        table.add_column(escape(header[1:] if right else header), justify="right" if right else "left", no_wrap=True)
    return table


def _print(what: Table | str) -> None:
    console = Console(highlight=False)
    if isinstance(what, Table):
        # A line that the terminal wraps can still be read, and a pipe has no width; a cell that was cut is lost.
        unbounded = console.options.update(max_width=_LINE_CHARS_MAX)
        console.width = max(console.width, console.measure(what, options=unbounded).maximum)
    console.print(what, soft_wrap=isinstance(what, str))


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)
