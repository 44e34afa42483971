"""Commands that change what a store holds. What changes history asks first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagster_ckpt.cli import argument_values
from dagster_ckpt.cli.request import Request, as_of_time, asked, at_epoch, at_one_epoch, confirm, fencing, unasked
from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    from datetime import datetime

    from dagster_ckpt.history import WriterInfo


@click.command()
@click.argument("stream")
@click.option(
    "--epoch", type=argument_values.number, metavar="EPOCH", help="Which retained epoch; 0: the empty stream."
)
@as_of_time
@fencing
@unasked
@asked
def rollback(
    request: Request, stream: str, *, epoch: int | None, as_of: datetime | None, fence: bool, yes: bool
) -> None:
    """Make STREAM show an older epoch again.

    Give --epoch, or --as-of. Its next Dagster run goes on from there. Streams that have read what is left behind stop
    until they go back too. Whether a writer is live takes its lease's time-out to find out.
    """
    from dagster_ckpt.cli import confirmation
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_wait

    if epoch is None and as_of is None:
        raise click.UsageError("back to which epoch? Give --epoch or --as-of; epoch 0 is the empty stream.")
    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    if epoch is None:
        epoch = history.info(as_of=as_of).epoch
    if not yes:
        confirm(confirmation.rollback(history, epoch), yes=yes)
    with shown_wait(f"{stream}: goes back, unless a writer is live"):
        info = history.rollback(epoch, fence=fence)
    request.tell(text_tables.rollback, documents.rollback, info)


@click.command()
@click.argument("stream")
@click.argument("name")
@at_epoch
@as_of_time
@asked
def pin(request: Request, stream: str, name: str, epoch: int | None, as_of: datetime | None) -> None:
    """Keep an epoch of STREAM readable under NAME.

    It stays until it is unpinned, whatever is retired. A writer at work is not disturbed; the same pin again changes
    nothing.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    if epoch is None:
        epoch = history.info(as_of=as_of).epoch
    request.tell(text_tables.pinned, documents.pinned, stream, history.pin(epoch, name))


@click.command()
@click.argument("stream")
@click.argument("name")
@unasked
@asked
def unpin(request: Request, stream: str, name: str, *, yes: bool) -> None:
    """Let the epoch go that is pinned as NAME.

    It can be read for as long as it is retained; once it is not, its files are garbage.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    history = request.store.stream(stream)
    pinned = [] if yes else [pin for pin in history.pins() if pin.name == name and (pin.fork is None or pin.orphan)]
    for pin in pinned:  # of one that is not there, or that a fork needs, nobody is asked
        confirm(f"Unpin epoch {pin.epoch} of {stream}, {name!r}? Once it is retired, nothing brings it back.", yes=yes)
    history.unpin(name)
    request.tell(text_tables.unpinned, documents.unpinned, stream, name)


@click.command()
@click.argument("stream")
@click.argument("new", metavar="NEW")
@at_epoch
@as_of_time
@unasked
@asked
def fork(request: Request, stream: str, new: str, epoch: int | None, as_of: datetime | None, *, yes: bool) -> None:
    """Make a stream NEW that begins with an epoch of STREAM.

    Nothing is copied: STREAM keeps what NEW needs, and both go on by themselves. The asset of that name goes on with
    the epoch's state and source positions. --epoch 0 makes an empty stream.
    """
    from dagster_ckpt.cli.output import documents, text_tables

    at_one_epoch(epoch, as_of)
    history = request.store.stream(stream)
    chosen = 0 if epoch == 0 else history.info(epoch, as_of).epoch
    begins = f"begins with epoch {chosen} of {stream}, of which it keeps the files" if chosen else "is empty"
    if not yes and new not in request.store.streams():  # where the name is taken nobody is asked
        confirm(f"Make the stream {new}, which {begins}?", yes=yes)
    made = history.fork(new, chosen).latest()
    request.tell(text_tables.forked, documents.forked, made, stream, chosen)


@click.command()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@click.option(
    "--grace-period",
    type=argument_values.duration,
    metavar="DURATION",
    default="1 hour",
    show_default=True,
    help="Longer than anybody reads one epoch.",
)
@click.option(
    "--max-lag",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    default=10_000,
    show_default=True,
    help="A stream that reads this one and is further behind is cut off.",
)
@unasked
@asked
def gc(request: Request, streams: tuple[str, ...], grace_period: str, max_lag: int, *, yes: bool) -> None:
    """Remove what nobody needs any more of STREAM, or of all.

    Epochs that have not been retained for the grace period, and what failed attempts have left. Running writers do so
    by themselves, every now and then; this is for streams that none writes, and safe beside everybody. The command
    knows no asset's options: give it those of the stream's coordinator where they are longer.
    """
    from dagster_ckpt.cli.output import amounts, documents, text_tables
    from dagster_ckpt.cli.progress import shown_wait

    names = streams or tuple(request.store.streams())
    histories = [request.store.stream(name) for name in names]
    what = ", ".join(names) if streams else f"all {amounts.count(len(names), 'stream')}"
    confirm(f"Remove what is no longer needed of {what}? Nothing brings it back.", yes=yes or not names)
    collected, failed = {}, []
    for history in histories:
        try:
            with shown_wait(history.name):
                collected[history.name] = history.collect_garbage(grace_period, max_lag)
        except CheckpointError as error:
            failed.append(f"{history.name}: {error}")  # it must not keep the others from it
    request.tell(text_tables.collected, documents.collected, request.store.url, collected)
    if failed:
        raise click.ClickException("\n".join(failed))


@click.command()
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...")
@click.option("--wait", "waits", is_flag=True, help="Return when the writers have ended.")
@asked
def drain(request: Request, streams: tuple[str, ...], *, waits: bool) -> None:
    """Ask the writer of STREAM to end cleanly at its next epoch.

    For deploys: the next Dagster run goes on from there, with new code if there is any. The sensor starts that of a
    continuous stream. Who opens the stream after this is not meant. With --wait the exit status is 1 where a writer
    died instead.
    """
    from dagster_ckpt.cli.output import writer_text
    from dagster_ckpt.cli.progress import shown_wait

    histories = [request.store.stream(name) for name in streams]  # one that is not there is told before any is asked
    draining = {history.name: history.drain() for history in histories}
    if not waits:
        asked_now = {name: None if each is None else each.writer for name, each in draining.items()}
        request.tell(writer_text.asked_to_end, writer_text.drains, asked_now)
        return
    ended: dict[str, WriterInfo | None] = {}
    failed = []
    for name, each in draining.items():
        try:
            with shown_wait(f"{name} works on") as say:
                ended[name] = None if each is None else each.wait(writer_text.waiting(name, say))
        except CheckpointError as error:
            failed.append(f"{name}: {error}")  # the others may have ended well
    request.tell(writer_text.ended, writer_text.drains, ended)
    if failed:
        raise click.ClickException("\n".join(failed))


@click.command()
@click.argument("stream")
@click.argument("name")
@unasked
@asked
def unsubscribe(request: Request, stream: str, name: str, *, yes: bool) -> None:
    """Let the change log go that STREAM keeps for stream NAME.

    For one that will not come back. One that does subscribes again with its next start; what it needs may be gone then.
    """
    from dagster_ckpt.cli.output import subscriber_text

    history = request.store.stream(stream)
    if not yes and any(each.stream == name for each in history.subscribers()):  # of others nobody is asked
        confirm(
            f"Let the change log go that {stream} keeps for {name}? If {name} runs again, it may have to begin anew.",
            yes=yes,
        )
    history.unsubscribe(name)
    request.tell(subscriber_text.let_go, subscriber_text.unsubscribed, stream, name)


@click.command()
@click.argument("stream")
@click.option(
    "--shards", type=argument_values.shards, metavar="SHARDS", required=True, help="How many: a power of two."
)
@fencing
@unasked
@asked
def reshard(request: Request, stream: str, *, shards: int, fence: bool, yes: bool) -> None:
    """Give STREAM another number of shards.

    Its next Dagster run goes on with it; give its asset the same number. What waits for the watermark is written anew,
    all else stays where it is. Whether a writer is live takes its lease's time-out to find out.
    """
    from dagster_ckpt.cli.output import documents, text_tables
    from dagster_ckpt.cli.progress import shown_progress

    history = request.store.stream(stream)
    before = history.latest().shards
    if before != shards:  # of a number that it has nobody is asked
        confirm(f"Give {stream} {shards} shards? It has {before}.", yes=yes)
    with shown_progress() as progress_of:
        info = history.reshard(shards, fence=fence, progress=progress_of(stream))
    request.tell(text_tables.reshard, documents.reshard, info)


COMMANDS = (rollback, pin, unpin, fork, gc, drain, unsubscribe, reshard)
