"""Output for people: tables with units, relative times and thousand separators. Programs use `documents`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
from rich.markup import escape

from dagster_ckpt.cli.far_times import values_of
from dagster_ckpt.cli.output import amounts, writer_text
from dagster_ckpt.cli.output.pipeline_text import lag_line, source_line
from dagster_ckpt.cli.output.text_layout import NOTHING, column, new_table, say, table_of
from dagster_ckpt.history import Collected, EpochInfo, PinInfo, UpstreamInfo, Verification, WriterInfo
from dagster_ckpt.history.damage.verification import Finding
from dagster_ckpt.operators.explained.operator_text import inputs_of, operator_line
from dagster_ckpt.protocol.epochs.lineage import ranges
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import (
    BackfillStatus,
    ChangeRef,
    Manifest,
    Owner,
    Pipeline,
    ReadBy,
    RunRef,
    ShardTime,
)
from dagster_ckpt.protocol.transitions.edits import NO_OWNER
from dagster_ckpt.protocol.transitions.epoch_statistics import distinct_files
from dagster_ckpt.quantities import duration, span

_ROWS = 50
_SHARDS = 5
_CELL_CHARS_MAX = 60
_MICROSECOND = timedelta(microseconds=1)


def streams(store: str, newest: Sequence[tuple[EpochInfo, WriterInfo]]) -> None:
    """Every stream: whether it is live, and its current epoch."""
    now = amounts.now()
    table = new_table(
        "stream",
        "status",
        ">epoch",
        "committed",
        ">table rows",
        "~>rows read",
        "~>state rows",
        "~>state",
        "~event time (UTC)",
    )
    for info, writer in newest:
        table.add_row(
            f"[bold]{escape(info.stream)}[/]",
            writer_text.status(writer, now),
            str(info.epoch),
            amounts.ago(info.committed_at, now) if info.epoch else NOTHING,
            NOTHING if info.table_rows is None else amounts.count(info.table_rows),
            amounts.count(info.total_rows_in),
            amounts.count(info.state_rows),
            amounts.size(info.state_bytes),
            NOTHING if info.event_time is None else amounts.moment(info.event_time),
        )
    if table.row_count:
        say(table)
    else:
        say(f"No streams in {escape(store)} yet.")


def epochs(stream: str, readable: Sequence[EpochInfo], pinned: Sequence[PinInfo]) -> None:
    """The epochs of a stream that can be read, newest first, and the names of their pins."""
    if not readable:
        say(f"{escape(stream)} has no epoch yet.")
        return
    now = amounts.now()
    table = new_table(
        ">epoch", "committed (UTC)", "~ago", ">rows in", ">changes", ">late", ">took", "~>state rows", "~>state", ""
    )
    for info in readable:
        names = [pin.name for pin in pinned if pin.epoch == info.epoch and pin.fork is None]
        table.add_row(
            str(info.epoch),
            amounts.moment(info.committed_at),
            f"[dim]{amounts.ago(info.committed_at, now)}[/]",
            amounts.count(info.rows_in),
            amounts.count(info.rows_out),
            amounts.count(info.late_rows) if info.late_rows else NOTHING,
            duration(info.epoch_ms),
            amounts.count(info.state_rows),
            amounts.size(info.state_bytes),
            ", ".join(filter(None, (_standing(info), *(f"pinned as {_quote(name)}" for name in names)))),
        )
    say(table)
    say(f"[dim]{amounts.count(len(readable), 'epoch')} of {escape(stream)} can be read.[/]")


def read(info: EpochInfo, table: pa.Table, limit: int | None) -> None:
    """The first `limit` rows of the stream's table, by default a screenful."""
    _say_rows(table, limit, f"of {info.stream} at epoch {info.epoch}")


def changes(stream: str, table: pa.Table, limit: int | None) -> None:
    """The first `limit` rows of a change log, by default a screenful."""
    _say_rows(table, limit, f"of the change log of {stream}")


def show(
    info: EpochInfo, manifest: Manifest, writer: WriterInfo | None, upstreams: Sequence[UpstreamInfo] = ()
) -> None:
    """An epoch, the manifest that shows it, and, for the current epoch, the writer and the streams that it reads."""
    now = amounts.now()
    facts = [*_facts(info, manifest, upstreams, now), *_writing(writer, now)]
    width = max(len(name) for name, _ in facts) + 3
    standing = _standing(info) if writer is None else f"{_standing(info)}, {writer_text.status(writer, now)}"
    say(f"[bold]{escape(info.stream)}[/] epoch {info.epoch}  {standing}\n")
    for name, value in facts:
        say(f"[dim]{escape(name.ljust(width))}[/]{value}" if name else "")


def verify(store: str, verified: Sequence[Verification]) -> None:
    """What was read from each stream, then every damaged object and the command that repairs it."""
    table = new_table(
        "stream", ">epoch", ">manifests", ">state files", ">change logs", ">indexes", ">pins", ">read", ""
    )
    for each in verified:
        counts = (each.manifests, each.runs, each.changes, each.index_objects, each.pins)
        table.add_row(
            f"[bold]{escape(each.stream)}[/]",
            NOTHING if each.epoch is None else str(each.epoch),
            *(amounts.count(count) for count in counts),
            amounts.size(each.bytes),
            "[green]whole[/]" if each.whole else f"[red]{amounts.count(len(each.findings), 'damaged object')}[/]",
        )
    if not table.row_count:
        say(f"No streams in {escape(store)} yet.")
        return
    say(table)
    for each in verified:
        if not each.whole:
            _print_damage(each)


def rollback(info: EpochInfo) -> None:
    """The epoch that the stream shows now."""
    say(f"[bold]{escape(info.stream)}[/] shows epoch {info.epoch}; its next Dagster run continues from there.")


def rollbacks(infos: Sequence[EpochInfo]) -> None:
    """The epochs that several streams show now."""
    for info in infos:
        rollback(info)


def savepoint(pins: Mapping[str, PinInfo]) -> None:
    """The pins of several streams that exist now."""
    for stream, pin in pins.items():
        new_pin(stream, pin)


def pins(stream: str, pinned: Sequence[PinInfo]) -> None:
    """The pins of a stream."""
    now = amounts.now()
    table = new_table("pin", ">epoch", "committed (UTC)", "pinned (UTC)", "ago", "")
    for pin in pinned:
        table.add_row(
            f"[bold]{escape(pin.name)}[/]",
            str(pin.epoch),
            amounts.moment(pin.committed_at),
            amounts.moment(pin.pinned_at),
            f"[dim]{amounts.ago(pin.pinned_at, now)}[/]",
            _fork_note(pin),
        )
    say(table if pinned else f"{escape(stream)} has no pins.")


def new_pin(stream: str, pin: PinInfo) -> None:
    """The pin that exists now."""
    say(f"Epoch {pin.epoch} of [bold]{escape(stream)}[/] is pinned as {_quote(pin.name)}.")


def fork(info: EpochInfo, origin: str, epoch: int) -> None:
    """The new stream's current epoch, and the origin stream and epoch."""
    begins = f"with epoch {epoch} of {escape(origin)}, as its epoch {info.epoch}" if epoch else "empty"
    say(f"[bold]{escape(info.stream)}[/] begins {begins}.")


def removed_pin(stream: str, name: str) -> None:
    """The removed pin."""
    say(f"{_quote(name)} of [bold]{escape(stream)}[/] is unpinned.")


def removed_objects(store: str, removed: Mapping[str, Collected]) -> None:
    """How many objects of each kind were removed from each stream."""
    table = new_table("stream", ">manifests", ">files", ">leases", ">leftovers")
    for name, each in removed.items():
        counts = (each.manifests, each.files, each.leases, each.leftovers)
        table.add_row(f"[bold]{escape(name)}[/]", *(amounts.count(count) if count else NOTHING for count in counts))
    if table.row_count:
        say(table)
    for name, each in removed.items():
        of = f"[bold]{escape(name)}[/]"
        for slow in each.cut_off:
            say(f"{escape(slow)} lags too far behind {of}: the change log is no longer kept for it.")
        for gone in each.gone:
            say(f"{escape(gone)} reads {of} and is not in the store: the change log is still kept for it.")
    every = sum(each.manifests + each.files + each.leases + each.leftovers for each in removed.values())
    say(f"[dim]{amounts.count(every, 'object')} removed from {escape(store)}.[/]")


def reshard(info: EpochInfo) -> None:
    """The stream's new number of shards."""
    shards = amounts.count(info.shards, "shard")
    say(f"[bold]{escape(info.stream)}[/] has {shards} at epoch {info.epoch}; its next Dagster run continues.")
    say(f"Give its asset the same number: shards={info.shards}.")


def _say_rows(table: pa.Table, limit: int | None, whose: str) -> None:
    limit = _ROWS if limit is None else limit
    shown = table_of(column(field.name, is_number=_is_number(field.type)) for field in table.schema)
    columns = [values_of(each, between=" ") for each in table.slice(0, limit).columns]
    for row in zip(*columns, strict=True):
        shown.add_row(*map(_cell, row))
    if shown.columns:
        say(shown)
    of, more = (f"{amounts.count(limit)} of ", " --limit N prints more.") if table.num_rows > limit else ("", "")
    rows = amounts.count(table.num_rows, "row")
    say(f"[dim]{of}{rows} {escape(whose)}.{more}[/]")


def _quote(name: str) -> str:
    return escape(repr(name))


def _fork_note(pin: PinInfo) -> str:
    if pin.fork is None:
        return ""
    return f"for the fork {escape(pin.fork)}{', [yellow]which does not exist: unpin it[/]' if pin.orphan else ''}"


def _print_damage(verified: Verification) -> None:
    say(f"\n[bold]{escape(verified.stream)}[/]")
    table = new_table("damaged object", "what is wrong", "needed by")
    for finding in verified.findings:
        of = "" if finding.step is None else f", in the state of step {finding.step}"
        table.add_row(escape(finding.object), escape(finding.wrong) + of, escape(_dependents(finding)))
    say(table)
    if verified.command is None:
        say(f"The current epoch, {verified.epoch}, is whole.")
    elif verified.good_epoch is None:
        say("No retained epoch is whole: restore the objects from a backup, or empty the stream:")
    else:
        say(f"The newest epoch that is whole is {verified.good_epoch}. To roll back to it:")
    if verified.command is not None:
        say(f"    {escape(verified.command)}")


def _dependents(finding: Finding) -> str:
    epochs = [f"epoch {ranges(finding.epochs)}"] if finding.epochs else []
    return ", ".join([*epochs, *finding.pins]) or "nothing that can be read"


def _facts(
    info: EpochInfo, manifest: Manifest, upstreams: Sequence[UpstreamInfo], now: datetime
) -> Iterable[tuple[str, str]]:
    yield (
        "committed" if info.epoch else "opened",
        f"{amounts.moment(info.committed_at)} UTC, {amounts.ago(info.committed_at, now)}",
    )
    yield "manifest", f"version {manifest.version}, of kind {manifest.kind}, in term {manifest.term}"
    if info.epoch:
        yield "rows", _rows(info.rows_in, info.rows_out, info.late_rows)
        if info.read_by is not None:
            yield "  read by", _READ_BY[info.read_by]
        slowest = manifest.slowest_shards[:_SHARDS]
        yield "took", f"{duration(info.epoch_ms)}{', the slowest shards:' if slowest else ''}"
        for each in slowest:
            of = f" of step {each.step}" if manifest.pipeline.before else ""
            yield f"  shard {each.shard}{of}", _shard(each)
        if manifest.checkpoint_interval_ms is not None:
            yield "interval", duration(manifest.checkpoint_interval_ms)
        if info.merged_rows:
            waited = f", intake waited {duration(info.stall_ms)}" if info.stall_ms else ""
            yield "compaction", f"{amounts.count(info.merged_rows, 'row')} merged{waited}"
    if info.event_time is not None:
        yield "event time", f"{amounts.moment(info.event_time)} UTC"
        yield "  lag", _lag(info, info.event_time, now)
    if info.watermark is not None:
        yield "watermark", f"{amounts.moment(info.watermark)} UTC"
    yield "", ""
    yield from _pipeline_rows(info, manifest)
    yield "", ""
    yield from _so_far(info, manifest, upstreams)


_READ_BY = {
    ReadBy.SPARK: "Spark",
    ReadBy.TASKS: "Arrow, in Spark's tasks",
    ReadBy.DRIVER: "the driver, which did all work without a job of Spark's",
}


def _lag(info: EpochInfo, event_time: datetime, now: datetime) -> str:
    """How far the newest event time was behind at the commit, and is now."""
    behind = [f"{span((info.committed_at - event_time) // _MICROSECOND)} at the commit"]
    if info.current:
        behind.append(f"{span((now - event_time) // _MICROSECOND)} now")
    return ", ".join(behind)


def _rows(rows_in: int, rows_out: int, late_rows: int) -> str:
    late = f", {amounts.count(late_rows)} too late" if late_rows else ""
    return f"{amounts.count(rows_in)} in, {amounts.count(rows_out, 'change')} out{late}"


def _shard(time: ShardTime) -> str:
    """How long a shard took, where, and for how many rows."""
    return f"{duration(time.milliseconds)} on {escape(time.host)}, {amounts.count(time.rows_in, 'row')} in"


def _pipeline_rows(info: EpochInfo, manifest: Manifest) -> Iterable[tuple[str, str]]:
    """The stream's operator, key and state; of several steps each with its own."""
    pipeline, rows = manifest.pipeline, info.table_rows
    if not pipeline.before:
        yield "operator", escape(operator_line(pipeline))
        if pipeline.keys:
            yield "key", escape(", ".join(pipeline.key_names))
    yield "columns", _columns(pipeline.output)
    yield "table rows", "not known" if rows is None else amounts.count(rows)
    yield "shards", amounts.count(manifest.shards)
    if pipeline.all_tables:
        yield "state", f"{amounts.count(info.state_rows, 'row')}, {amounts.size(info.state_bytes)}"
    if not pipeline.before:
        yield from _tables_of(0, pipeline, manifest)
    if manifest.changes:
        yield "change log", _files(info.rows_out, manifest.changes)
    table_files = sum(index.entries for index in manifest.files.index) + len(manifest.files.tail)
    if table_files:
        yield "table files", amounts.count(table_files)
    if pipeline.before:
        yield "", ""
        yield from _steps(manifest)


def _steps(manifest: Manifest) -> Iterable[tuple[str, str]]:
    """What each of several steps reads, keeps and did in the epoch."""
    for number, step in enumerate(manifest.pipeline.steps):
        yield f"step {number}", escape(operator_line(step))
        yield "  reads", escape(", ".join(inputs_of(step)))
        if step.keys:
            yield "  key", escape(", ".join(step.keys))
        did = manifest.work_of(number)
        if did is not None:
            yield "  rows", _rows(did.rows_in, did.rows_out, did.late_rows)
            yield "  took", duration(did.milliseconds)
        yield from _tables_of(number, step, manifest)


def _tables_of(number: int, step: Pipeline, manifest: Manifest) -> Iterable[tuple[str, str]]:
    for spec in step.tables:
        yield f"  in {spec.name}", _state(manifest.runs.get(manifest.pipeline.name_in_runs(number, spec.name), ()))


def _so_far(info: EpochInfo, manifest: Manifest, upstreams: Sequence[UpstreamInfo]) -> Iterable[tuple[str, str]]:
    """Where the stream comes from and how far it is: ancestors, sources with their lag, late rows, owner."""
    for origin in manifest.ancestors:
        if origin.swapped:
            yield "rebuilt as", f"{escape(origin.stream)}, epoch {origin.epoch}"
    for origin in [each for each in manifest.ancestors if not each.swapped][-1:]:
        yield "forked from", f"{escape(origin.stream)}, epoch {origin.epoch}"
    for position in manifest.sources:
        yield "source", escape(source_line(position))
        for upstream in upstreams:
            if (position.source.format, position.source.address) == (FORMAT, upstream.stream):
                yield "  lag", lag_line(upstream)
    if manifest.backfill.status is BackfillStatus.CREATING:
        yield "status", f"creating: {manifest.backfill.position} of the upstream's snapshot is read"
    all_late = manifest.statistics.total_late_rows
    too_late = f", {amounts.count(all_late)} too late" if all_late else ""
    yield (
        "so far",
        f"{amounts.count(info.total_rows_in, 'row')} in {amounts.count(info.total_epochs, 'epoch')}{too_late}",
    )
    yield "owner", escape(_owner(manifest.owner))
    yield "uuid", manifest.uuid


def _owner(owner: Owner) -> str:
    if owner == NO_OWNER:
        return "none yet: the asset that opens it first"
    location = f", code location {owner.location}" if owner.location else ""
    return f"asset {owner.asset_key} of Dagster instance {owner.instance}{location}"


def _writing(writer: WriterInfo | None, now: datetime) -> Iterable[tuple[str, str]]:
    if writer is not None:
        yield "writer", writer_text.in_words(writer, now)
    if writer is not None and writer.work is not None:
        yield "in work", writer_text.work_in_words(writer.work)


def _state(shards: Sequence[Sequence[RunRef]]) -> str:
    files = distinct_files(shards)
    if not files:
        return "no file"
    longest = max(map(len, shards))
    # Rows of files are more than rows of the table: an updated row is in several files until they are merged.
    return f"{_files(sum(file.rows for file in files), files)}, at most {longest} in a shard"


def _files(rows: int, files: Collection[RunRef | ChangeRef]) -> str:
    size = sum(file.bytes for file in files)
    return f"{amounts.count(rows, 'row')}, {amounts.size(size)} in {amounts.count(len(files), 'file')}"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{escape(column.name)} [dim]{escape(str(column.type))}[/]" for column in schema)


def _standing(info: EpochInfo) -> str:
    if info.current:
        return "[green]current[/]"
    return "[dim]abandoned[/]" if info.abandoned else ""


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: object) -> str:
    if value is None:
        return "[dim]null[/]"
    text = _number(value) if isinstance(value, float) else str(value)
    if not text.isprintable():
        text = repr(text)[1:-1]  # data must not move the reader's cursor
    return escape(text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…")


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
