"""Commands that only read: they can be used while the streams run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from dagster_ckpt.cli import argument_values
from dagster_ckpt.cli.request import (
    CommandRequest,
    as_of_time,
    at_epoch,
    at_most,
    at_one_epoch,
    only_columns,
    takes_request,
)
from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    from datetime import datetime


@click.command()
@takes_request
def streams(request: CommandRequest) -> None:
    """List the streams in the store.

    Whether each is live, its current epoch, how long ago that was committed, and the rows of its table.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    newest = []
    damaged = []
    for name in request.store.streams():
        try:
            history = request.store.stream(name)
            newest.append((history.latest(), history.writer()))
        except CheckpointError as error:
            damaged.append(f"{name}: {error}")  # one damaged stream must not hide the others
    request.show(text_tables.streams, documents.streams, request.store.url, newest)
    if damaged:
        raise click.ClickException("\n".join(damaged))


@click.command()
@click.argument("stream")
@takes_request
def epochs(request: CommandRequest, stream: str) -> None:
    """List the epochs of STREAM that can be read, newest first."""
    from dagster_ckpt.cli.output import documents, text_tables

    history = request.store.stream(stream)
    request.show(text_tables.epochs, documents.epochs, stream, history.epochs(), history.pins())


@click.command()
@click.argument("stream")
@at_epoch
@as_of_time
@click.option("--watch", is_flag=True, help="Follow the stream while it is written, until it ends or Ctrl-C.")
@takes_request
def show(request: CommandRequest, stream: str, epoch: int | None, as_of: datetime | None, *, watch: bool) -> None:
    """Show one epoch of STREAM.

    Its pipeline, table, state, files, sources and figures. For the current epoch also the writer, the progress of the
    next epoch, and how far it is behind the streams that it reads.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    if watch and (epoch is not None or as_of is not None or request.for_programs):
        raise click.UsageError("--watch follows the current epoch, on a screen: leave out --epoch, --as-of and --json.")
    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    if watch:
        from dagster_ckpt.cli.watch_screen import follow

        follow(history)
        return
    info = history.info(epoch, as_of)
    writer, upstreams = (history.writer(), history.upstreams()) if info.current else (None, [])
    request.show(text_tables.show, documents.show, info, history.manifest(info.epoch), writer, upstreams)


@click.command()
@click.argument("stream")
@at_epoch
@as_of_time
@takes_request
def explain(request: CommandRequest, stream: str, epoch: int | None, as_of: datetime | None) -> None:
    """Explain what STREAM keeps, step by step.

    What each step reads and whether that only appends, what it keeps, what bounds that, how much there is of it, and
    how the watermark stands, which lets state go.
    """
    from dagster_ckpt.cli.output import documents, explanation_text
    from dagster_ckpt.operators.explained.explanation import explain_pipeline

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    info = history.info(epoch, as_of)
    manifest = history.manifest(info.epoch)
    request.show(
        explanation_text.show_explanation, documents.explain, info, manifest, explain_pipeline(manifest.pipeline)
    )


@click.command()
@click.argument("stream")
@at_epoch
@as_of_time
@only_columns
@at_most
@takes_request
def read(
    request: CommandRequest,
    stream: str,
    epoch: int | None,
    as_of: datetime | None,
    columns: list[str] | None,
    limit: int | None,
) -> None:
    """Print the table of STREAM as it was at an epoch.

    Its rows come in the order of its key.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.output.result_order import by_key

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    info = history.info(epoch, as_of)
    table = history.read(info.epoch, columns=columns)
    table = by_key(table, history.manifest(info.epoch).pipeline.key_names)
    request.show(text_tables.read, documents.read, info, table, limit)


@click.command()
@click.argument("stream")
@click.option("--key", "keys", metavar="COLUMN=VALUE", multiple=True, required=True, help="Which key; again for more.")
@at_epoch
@as_of_time
@only_columns
@takes_request
def get(
    request: CommandRequest,
    stream: str,
    keys: tuple[str, ...],
    epoch: int | None,
    as_of: datetime | None,
    columns: list[str] | None,
) -> None:
    """Print the rows of STREAM that have these keys.

    \b
    get delay_by_carrier --key carrier=UA --key carrier=AA
    get delay_by_route --key origin=JFK --key dest=LAX     the one row of both

    Only the files that may have them are read. COLUMN= is an empty value, COLUMN alone is null.
    """  # noqa: D301
    from dagster_ckpt.cli.key_arguments import keys_in
    from dagster_ckpt.cli.output import documents, text_tables

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    info = history.info(epoch, as_of)
    asked_for = keys_in(keys, history.manifest(info.epoch))
    table = history.get(asked_for, info.epoch, columns)
    request.show(text_tables.read, documents.read, info, table, table.num_rows)


@click.command()
@click.argument("stream")
@click.option(
    "--after",
    type=argument_values.number,
    metavar="EPOCH",
    help="The epoch before the first; 0: the stream's beginning.",
)
@click.option(
    "--after-as-of",
    type=argument_values.time,
    metavar="TIME",
    help="The same by time: the newest epoch committed by then.",
)
@click.option(
    "--until", type=argument_values.number, metavar="EPOCH", help="The last epoch; without it the current one."
)
@click.option("--until-as-of", type=argument_values.time, metavar="TIME", help="The same by time.")
@only_columns
@at_most
@takes_request
def changes(
    request: CommandRequest,
    stream: str,
    *,
    after: int | None,
    after_as_of: datetime | None,
    until: int | None,
    until_as_of: datetime | None,
    columns: list[str] | None,
    limit: int | None,
) -> None:
    """Print the change log of STREAM.

    Epoch after epoch, each in the order of the key; an update is two rows. Give --after, or --after-as-of.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.output.result_order import by_epoch_and_key

    if after is None and after_as_of is None:
        raise click.UsageError("after which epoch? Give --after or --after-as-of; 0 is the stream's beginning.")
    at_one_epoch(after, after_as_of, "--after or --after-as-of")
    at_one_epoch(until, until_as_of, "--until or --until-as-of")
    history = request.store.stream(stream)
    table = history.changes(after, until, columns, after_as_of=after_as_of, until_as_of=until_as_of)
    table = by_epoch_and_key(table, history.manifest().pipeline.key_names)
    request.show(text_tables.changes, documents.changes, stream, table, limit)


@click.command()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@takes_request
def verify(request: CommandRequest, streams: tuple[str, ...]) -> None:
    """Compare every checksum of STREAM, or of all.

    Reads every byte of every readable epoch and of every pin; also while the stream runs. Damaged objects are listed
    with the newest undamaged epoch and the command to roll back to it; then the exit status is 1.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_progress

    names = streams or request.store.streams()
    with shown_progress() as progress_of:
        verified = [request.store.stream(name).verify(progress_of(name)) for name in names]
    request.show(text_tables.verify, documents.verify, request.store.url, verified)
    if not all(each.whole for each in verified):
        raise SystemExit(1)


@click.command()
@click.argument("stream")
@takes_request
def pins(request: CommandRequest, stream: str) -> None:
    """List the pins of STREAM, by name."""
    from dagster_ckpt.cli.output import documents, text_tables

    request.show(text_tables.pins, documents.pins, stream, request.store.stream(stream).pins())


@click.command()
@click.argument("stream")
@takes_request
def subscribers(request: CommandRequest, stream: str) -> None:
    """List the streams that read STREAM.

    Shows how far each lags, and from which epoch on the change log is kept for it.
    """
    from dagster_ckpt.cli.output import subscriber_text

    there = request.store.stream(stream).subscribers()
    request.show(subscriber_text.show_subscribers, subscriber_text.subscribers_document, stream, there)


@click.command()
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option(
    "--consistency",
    type=click.Choice(["aligned", "latest"]),
    default="aligned",
    show_default=True,
    help="Epochs that belong together, or the current ones.",
)
@as_of_time
@click.option("--include-creating", is_flag=True, help="Also streams whose tables are still being created.")
@takes_request
def snapshot(
    request: CommandRequest,
    streams: tuple[str, ...],
    *,
    consistency: Literal["aligned", "latest"],
    as_of: datetime | None,
    include_creating: bool,
) -> None:
    """List which epochs of several streams to read together.

    Aligned: the newest epochs where each STREAM that reads another has consumed exactly the epoch shown for that one.
    Name a common upstream of two streams too, if both must agree on it.
    """
    from dagster_ckpt.cli.output import snapshot_text

    chosen = request.store.snapshot(streams, consistency, as_of, include_creating=include_creating)
    request.show(snapshot_text.show_snapshot, snapshot_text.snapshot_document, consistency, chosen)


COMMANDS = (streams, epochs, show, explain, read, get, changes, verify, pins, subscribers, snapshot)
