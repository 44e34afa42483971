"""Commands that change a store. Those that change history ask first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagster_ckpt.cli import argument_values
from dagster_ckpt.cli.request import (
    CommandRequest,
    as_of_time,
    at_epoch,
    at_one_epoch,
    confirm,
    fencing,
    takes_request,
    unasked,
)
from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from dagster_ckpt.history import WriterInfo


@click.command()
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option(
    "--epoch", type=argument_values.number, metavar="EPOCH", help="Which retained or pinned epoch; 0: the empty stream."
)
@as_of_time
@click.option("--pin", metavar="NAME", help="The epochs that a savepoint has pinned.")
@fencing
@unasked
@takes_request
def rollback(
    request: CommandRequest,
    streams: tuple[str, ...],
    *,
    epoch: int | None,
    as_of: datetime | None,
    pin: str | None,
    fence: bool,
    yes: bool,
) -> None:
    """Roll back to an older epoch: one STREAM, or several together.

    Give --epoch, --as-of or --pin. The next Dagster run continues from there. Streams that have read abandoned epochs
    stop until you roll them back too: name them here as well, with --as-of or --pin, to take all back to epochs that
    belong together. The check for a live writer may take one lease timeout.
    """
    from dagster_ckpt.cli import confirmation
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_wait

    given = [each for each in (epoch, as_of, pin) if each is not None]
    if not given:
        raise click.UsageError("roll back to which epoch? Give --epoch, --as-of or --pin; epoch 0 is the empty stream.")
    at_one_epoch(epoch, as_of)
    if len(given) > 1:
        raise click.UsageError("give --epoch, --as-of or --pin, not several.")
    if len(streams) > 1 or pin is not None:
        if epoch is not None:
            raise click.UsageError("an epoch is that of one stream: give several --as-of or --pin.")
        confirm(confirmation.together(streams, as_of, pin), yes=yes)
        with shown_wait(f"{', '.join(streams)}: rolling back, unless a writer is live"):
            shown = request.store.rollback(streams, as_of, pin=pin, fence=fence)
        request.show(text_tables.rollbacks, documents.rollbacks, list(shown.values()))
        return
    [stream] = streams
    history = request.store.stream(stream)
    if epoch is None:
        epoch = history.info(as_of=as_of).epoch
    if not yes:
        confirm(confirmation.rollback(history, epoch), yes=yes)
    with shown_wait(f"{stream}: rolling back, unless a writer is live"):
        info = history.rollback(epoch, fence=fence)
    request.show(text_tables.rollback, documents.rollback, info)


@click.command()
@click.argument("name")
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option(
    "--wait", default="1 minute", show_default=True, metavar="TIME", help="How long to wait for epochs in work."
)
@takes_request
def savepoint(request: CommandRequest, name: str, streams: tuple[str, ...], *, wait: str) -> None:
    """Pin an epoch of each STREAM as NAME, after its writer has committed what it works on.

    The epochs belong together if you name all streams of a chain. No writer is disturbed. `rollback STREAM... --pin
    NAME` takes all of them back.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_wait

    with shown_wait(f"{', '.join(streams)}: waiting for the epochs in work"):
        pins = request.store.savepoint(name, streams, wait)
    request.show(text_tables.savepoint, documents.savepoint, pins)


@click.command()
@click.argument("stream")
@click.argument("name")
@at_epoch
@as_of_time
@takes_request
def pin(request: CommandRequest, stream: str, name: str, epoch: int | None, as_of: datetime | None) -> None:
    """Keep an epoch of STREAM readable under NAME.

    It stays readable until you unpin it, even when the epoch is retired. A live writer is not disturbed; the same pin
    again changes nothing.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    if epoch is None:
        epoch = history.info(as_of=as_of).epoch
    request.show(text_tables.new_pin, documents.new_pin, stream, history.pin(epoch, name))


@click.command()
@click.argument("stream")
@click.argument("name")
@unasked
@takes_request
def unpin(request: CommandRequest, stream: str, name: str, *, yes: bool) -> None:
    """Remove the pin NAME from STREAM.

    The epoch stays readable while it is retained; after that, its files are garbage.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    history = request.store.stream(stream)
    pinned = [] if yes else [pin for pin in history.pins() if pin.name == name and (pin.fork is None or pin.orphan)]
    for pin in pinned:  # no question for a pin that does not exist, or that a fork needs
        confirm(f"Unpin epoch {pin.epoch} of {stream}, {name!r}? Once it is retired, it cannot be restored.", yes=yes)
    history.unpin(name)
    request.show(text_tables.removed_pin, documents.removed_pin, stream, name)


@click.command()
@click.argument("stream")
@click.argument("new", metavar="NEW")
@at_epoch
@as_of_time
@unasked
@takes_request
def fork(
    request: CommandRequest, stream: str, new: str, epoch: int | None, as_of: datetime | None, *, yes: bool
) -> None:
    """Create a stream NEW that begins with an epoch of STREAM.

    Nothing is copied: STREAM keeps the files that NEW needs, and both continue independently. The asset of that name
    continues with the epoch's state and source positions. --epoch 0 creates an empty stream.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    chosen = 0 if epoch == 0 else history.info(epoch, as_of).epoch
    begins = f"begins with epoch {chosen} of {stream} and keeps its files" if chosen else "is empty"
    if not yes and new not in request.store.streams():  # no question where the name is taken
        confirm(f"Create the stream {new}, which {begins}?", yes=yes)
    made = history.fork(new, chosen).latest()
    request.show(text_tables.fork, documents.fork, made, stream, chosen)


@click.command()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@click.option(
    "--grace-period",
    type=argument_values.duration,
    metavar="DURATION",
    default="1 hour",
    show_default=True,
    help="Longer than any reader takes for one epoch.",
)
@click.option(
    "--max-lag",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    default=10_000,
    show_default=True,
    help="Subscribers that lag further behind are cut off.",
)
@unasked
@takes_request
def gc(request: CommandRequest, streams: tuple[str, ...], grace_period: str, max_lag: int, *, yes: bool) -> None:
    """Collect the garbage of STREAM, or of all streams.

    Removes epochs that have been retired for the grace period, and leftovers of failed attempts. Live writers do this
    regularly; the command is for streams without a writer, and safe beside writers and readers. It does not know the
    assets' options: pass those of the stream's coordinator where they are longer.
    """
    from dagster_ckpt.cli.output import amounts, documents, text_tables
    from dagster_ckpt.cli.progress import shown_wait

    names = streams or tuple(request.store.streams())
    histories = [request.store.stream(name) for name in names]
    what = ", ".join(names) if streams else f"all {amounts.count(len(names), 'stream')}"
    confirm(f"Collect the garbage of {what}? It cannot be restored.", yes=yes or not names)
    collected, failed = {}, []
    for history in histories:
        try:
            with shown_wait(history.name):
                collected[history.name] = history.collect_garbage(grace_period, max_lag)
        except CheckpointError as error:
            failed.append(f"{history.name}: {error}")  # it must not stop the others
    request.show(text_tables.removed_objects, documents.removed_objects, request.store.url, collected)
    if failed:
        raise click.ClickException("\n".join(failed))


@click.command()
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option("--wait", "waits", is_flag=True, help="Return when the writers have ended.")
@takes_request
def drain(request: CommandRequest, streams: tuple[str, ...], *, waits: bool) -> None:
    """Ask the writer of STREAM to end cleanly at its next epoch.

    For deploys: the next Dagster run continues from there, with new code if there is any. The sensor starts that of a
    continuous stream. A writer that opens the stream later is not affected. With --wait the exit status is 1 if a
    writer died instead.
    """
    from dagster_ckpt.cli.output import writer_text
    from dagster_ckpt.cli.progress import shown_wait

    histories = [request.store.stream(name) for name in streams]  # an unknown one fails before any is drained
    draining = {history.name: history.drain() for history in histories}
    if not waits:
        asked_now = {name: None if each is None else each.writer for name, each in draining.items()}
        request.show(writer_text.show_drain_requests, writer_text.drains, asked_now)
        return
    ended: dict[str, WriterInfo | None] = {}
    failed = []
    for name, each in draining.items():
        try:
            with shown_wait(f"{name}: waiting for the writer") as show_progress:
                ended[name] = None if each is None else each.wait(writer_text.waiting(name, show_progress))
        except CheckpointError as error:
            failed.append(f"{name}: {error}")  # the others may have ended well
    request.show(writer_text.show_ends, writer_text.drains, ended)
    if failed:
        raise click.ClickException("\n".join(failed))


@click.command()
@click.argument("stream")
@click.argument("name")
@unasked
@takes_request
def unsubscribe(request: CommandRequest, stream: str, name: str, *, yes: bool) -> None:
    """Remove the subscriber NAME: STREAM no longer keeps its change log for it.

    For a stream that is gone for good. One that runs again subscribes again at its start; what it needs may be gone.
    """
    from dagster_ckpt.cli.output import subscriber_text

    history = request.store.stream(stream)
    if not yes and any(each.stream == name for each in history.subscribers()):  # no question for others
        confirm(
            f"Release the change log that {stream} keeps for {name}? If {name} runs again, it may need a backfill.",
            yes=yes,
        )
    history.unsubscribe(name)
    request.show(subscriber_text.show_removed_subscriber, subscriber_text.removed_subscriber, stream, name)


@click.command()
@click.argument("stream")
@click.option(
    "--shards", type=argument_values.shards, metavar="SHARDS", required=True, help="How many: a power of two."
)
@fencing
@unasked
@takes_request
def reshard(request: CommandRequest, stream: str, *, shards: int, fence: bool, yes: bool) -> None:
    """Change the number of shards of STREAM.

    Its next Dagster run continues with it; give its asset the same number. Rows that wait for the watermark are
    rewritten, everything else stays in place. The check for a live writer may take one lease timeout.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_progress

    history = request.store.stream(stream)
    before = history.latest().shards
    if before != shards:  # no question if nothing changes
        confirm(f"Give {stream} {shards} shards? It has {before}.", yes=yes)
    with shown_progress() as progress_of:
        info = history.reshard(shards, fence=fence, progress=progress_of(stream))
    request.show(text_tables.reshard, documents.reshard, info)


@click.command()
@click.argument("stream")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
@click.option("--pace", type=click.FloatRange(0, 1, min_open=True), help="The part of the time that it may work.")
@unasked
@takes_request
def rebuild(request: CommandRequest, stream: str, options: tuple[str, ...], *, pace: float | None, yes: bool) -> None:
    """Rebuild STREAM with the deployed code alongside the live one, then switch over to it.

    Launches the stream's job by `dagster job launch`, in the instance of DAGSTER_HOME: give what that needs after
    two dashes, such as `-- -w workspace.yaml`. The Dagster run works on its own: see how far it is with
    `dagster-ckpt show STREAM/~rebuild-1`.
    """
    history = request.store.stream(stream)
    newest = history.latest()
    confirm(f"Rebuild {history.name}, and switch over from epoch {newest.epoch} or a later one?", yes=yes)
    _launch(history.name, {"rebuild": True} | ({} if pace is None else {"rebuild_pace": pace}), options)
    click.echo(f"The rebuild of {history.name} is launched.")


@click.command("restart-steps")
@click.argument("stream")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
@unasked
@takes_request
def restart_steps(request: CommandRequest, stream: str, options: tuple[str, ...], *, yes: bool) -> None:
    """Start STREAM with changed steps, which begin with the tables of the steps before them.

    The Dagster run has `restart_steps` in its run config. It is launched as that of `rebuild` is: give what `dagster
    job launch` needs after two dashes, such as `-- -w workspace.yaml`.
    """
    history = request.store.stream(stream)
    newest = history.latest()
    confirm(f"Start changed steps of {history.name} over, after epoch {newest.epoch}?", yes=yes)
    _launch(history.name, {"restart_steps": True}, options)
    click.echo(f"A run of {history.name} with changed steps is launched.")


@click.command("from-epoch")
@click.argument("stream")
@click.argument("epoch", type=argument_values.number)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
@unasked
@takes_request
def from_epoch(request: CommandRequest, stream: str, epoch: int, options: tuple[str, ...], *, yes: bool) -> None:
    """Start STREAM from a retained or pinned EPOCH, with the deployed code; 0: from the sources' beginning.

    The Dagster run has `from_epoch` in its run config, and rolls back when it opens the stream: unlike `rollback`, it
    takes code that the newest epoch does not fit. It is launched as that of `rebuild` is: give what `dagster job
    launch` needs after two dashes, such as `-- -w workspace.yaml`.
    """
    from dagster_ckpt.cli import confirmation

    history = request.store.stream(stream)
    if epoch:
        history.info(epoch)  # an unknown one fails here, and not in the run
    if not yes:
        confirm(confirmation.rollback(history, epoch), yes=yes)
    _launch(history.name, {"from_epoch": epoch}, options)
    click.echo(f"A run of {history.name} from epoch {epoch} is launched.")


def _launch(stream: str, config: Mapping[str, object], options: Sequence[str]) -> None:
    """Launch the stream's job with this config of its op, in another process: this one knows no Dagster."""
    import json
    import subprocess
    import sys

    words = [sys.executable, "-m", "dagster_ckpt.integration.launch", stream, json.dumps(config), *options]
    if subprocess.run(words, check=False).returncode:
        raise click.ClickException(f"Dagster did not launch the job. Nothing has changed. stream={stream}")


COMMANDS = (rollback, savepoint, pin, unpin, fork, gc, drain, unsubscribe, reshard, rebuild, restart_steps, from_epoch)
