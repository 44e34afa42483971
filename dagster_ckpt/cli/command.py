"""The command's words and options. What they print is in `tables` (for people) and `documents` (for programs).

Exit status: 0 done, 1 it could not be done (a short message on stderr says why) or `verify` found damage, 2 the command
was written wrongly.
pyarrow and all that reads a store are imported when a command runs: `--help` is there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol

import click

from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    import pyarrow as pa

    from dagster_ckpt.history import CheckpointStore, EpochInfo, Verification
    from dagster_ckpt.protocol.manifest import Manifest

Rest = ParamSpec("Rest")


class Printer(Protocol):
    """Prints what a command found; `tables` and `documents` are the two."""

    def streams(self, store: str, newest: Sequence[EpochInfo], /) -> None: ...
    def epochs(self, stream: str, retained: Sequence[EpochInfo], /) -> None: ...
    def show(self, info: EpochInfo, manifest: Manifest, /) -> None: ...
    def read(self, info: EpochInfo, table: pa.Table, limit: int | None, /) -> None: ...
    def verify(self, store: str, verified: Sequence[Verification], /) -> None: ...
    def rollback(self, info: EpochInfo, /) -> None: ...


@dataclass(frozen=True)
class Request:
    """What every command was asked: which store, and for whom to print."""

    store: CheckpointStore
    printer: Printer


class FriendlyGroup(click.Group):
    """Says our errors in their own words: a traceback of this command helps nobody who reads a checkpoint."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CheckpointError as error:
            raise click.ClickException(str(error)) from error


def _printer(output: str | None) -> Printer:
    if output == "json":
        from dagster_ckpt.cli import documents

        return documents
    from dagster_ckpt.cli import tables

    return tables


def _asked(command: Callable[Concatenate[Request, Rest], None]) -> Callable[..., None]:
    """Give the command its `Request`. `--store` and `--json` may stand before or after its name: people write both."""

    @click.option("--store", "url", metavar="URL", help="The store, such as file:///data/checkpoints.")
    @click.option("--json", "output", flag_value="json", help="One JSON document, for programs.")
    @click.pass_context
    @wraps(command)
    def asked(
        context: click.Context, /, url: str | None, output: str | None, *rest: Rest.args, **options: Rest.kwargs
    ) -> None:
        common = context.find_root().params
        url = url or common["url"]
        if not url:
            raise click.UsageError("which store? Give --store URL, or set DAGSTER_CKPT_STORE.", context)
        from dagster_ckpt.history import CheckpointStore

        command(Request(CheckpointStore(url), _printer(output or common["output"])), *rest, **options)

    return asked


@click.group(cls=FriendlyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--store", "url", envvar="DAGSTER_CKPT_STORE", show_envvar=True, metavar="URL", help="The store to read.")
@click.option("--json", "output", flag_value="json", help="Print one JSON document instead of a table.")
@click.version_option(package_name="dagster-ckpt")
def main(url: str | None, output: str | None) -> None:
    """Look into the checkpoints of streaming assets.

    \b
    dagster-ckpt --store file:///data/checkpoints streams
    dagster-ckpt --store file:///data/checkpoints read delay_by_carrier --limit 10

    What only looks can be used while the streams run; what changes history asks first.
    """  # noqa: D301  (click's mark of a paragraph that keeps its lines is a backspace character)


@main.command()
@_asked
def streams(request: Request) -> None:
    """List the streams in the store, with their current epochs."""
    newest = []
    damaged = []
    for name in request.store.streams():
        try:
            newest.append(request.store.stream(name).latest())
        except CheckpointError as error:
            damaged.append(f"{name}: {error}")  # it must not hide the others
    request.printer.streams(request.store.url, newest)
    if damaged:
        raise click.ClickException("\n".join(damaged))


@main.command()
@click.argument("stream")
@_asked
def epochs(request: Request, stream: str) -> None:
    """List the epochs of STREAM that can be read, newest first."""
    request.printer.epochs(stream, request.store.stream(stream).epochs())


_epoch = click.option("--epoch", type=click.IntRange(min=0), help="Which epoch; without it the current one.")
_as_of = click.option("--as-of", metavar="TIME", help="The newest epoch committed by then: 2013-01-05T12:00 (UTC).")


@main.command()
@click.argument("stream")
@_epoch
@_as_of
@_asked
def show(request: Request, stream: str, epoch: int | None, as_of: str | None) -> None:
    """Show one epoch of STREAM.

    Its pipeline, state, files, sources and figures.
    """
    history = request.store.stream(stream)
    info = history.info(epoch, as_of)
    request.printer.show(info, history.manifest(info.epoch))


@main.command()
@click.argument("stream")
@_epoch
@_as_of
@click.option("--columns", metavar="A,B,...", help="Only these columns, in this order.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows (tables: 50, --json: all).")
@_asked
def read(
    request: Request, stream: str, epoch: int | None, as_of: str | None, columns: str | None, limit: int | None
) -> None:
    """Print the table of STREAM as it was at an epoch.

    Its rows come in the order of its key.
    """
    history = request.store.stream(stream)
    info = history.info(epoch, as_of)
    chosen = None if columns is None else [column.strip() for column in columns.split(",")]
    table = history.read(info.epoch, columns=chosen)
    keys = history.manifest(info.epoch).pipeline.keys
    if keys and set(keys) <= set(table.column_names):
        table = table.sort_by([(key, "ascending") for key in keys])
    request.printer.read(info, table, limit)


@main.command()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@_asked
def verify(request: Request, streams: tuple[str, ...]) -> None:
    """Read every byte of STREAM, or of all, and compare every checksum.

    What is damaged is told with the newest epoch that does without it and the command that goes back there; then the
    exit status is 1.
    """
    from dagster_ckpt.cli.progress import shown_progress

    names = streams or request.store.streams()
    with shown_progress() as progress_of:
        verified = [request.store.stream(name).verify(progress_of(name)) for name in names]
    request.printer.verify(request.store.url, verified)
    if not all(each.whole for each in verified):
        raise SystemExit(1)


@main.command()
@click.argument("stream")
@click.option("--epoch", type=click.IntRange(min=0), required=True, help="Which retained epoch; 0: the empty stream.")
@click.option("--fence", is_flag=True, help="Stop a live writer instead of refusing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_asked
def rollback(request: Request, stream: str, *, epoch: int, fence: bool, yes: bool) -> None:
    """Make STREAM show an older epoch again.

    Its next Dagster run goes on from there. Whether a writer is live takes its lease's time-out to find out.
    """
    history = request.store.stream(stream)
    if not yes:
        what = f"Go back to epoch {epoch} of {stream}" if epoch else f"Empty {stream}"
        click.confirm(
            f"{what}? Later epochs are left behind; their rows are read again from the sources.", abort=True, err=True
        )
    request.printer.rollback(history.rollback(epoch, fence=fence))


@main.command()
def class_archive() -> None:
    """Let Spark start in two thirds of its time.

    Writes an archive of the classes that its JVM loads, 170 MB, beside Spark; every stream that is started from this
    installation uses it from then on. Takes half a minute, once for each installation of Spark or Java.
    """
    import os

    from dagster_ckpt.cli.progress import shown_wait
    from dagster_ckpt.runtime.class_archive import archive_of, make_archive

    archive = archive_of(os.environ)
    if archive is None:
        raise click.ClickException("there is no Spark here: install pyspark, or set SPARK_HOME.")
    with shown_wait("A small stream runs, then Java writes its classes down"):
        make_archive(os.environ, archive)
    click.echo(f"{archive} is there: {archive.stat().st_size / 1e6:.0f} MB. Spark's next JVM starts with it.")
