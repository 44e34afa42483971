"""Common options of the commands, and their output.

A command prints its result with `request.show(text_tables.epochs, documents.epochs, *found)`. The first function prints
it for people, the second returns its JSON document; a type checker verifies that both take the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

from dagster_ckpt.cli import argument_values
from dagster_ckpt.errors import CheckpointError

if TYPE_CHECKING:
    from datetime import datetime

    from dagster_ckpt.history import CheckpointStore

Rest = ParamSpec("Rest")
Found = ParamSpec("Found")
Document = dict[str, object]

STORE_HELP = "The store, such as file:///data/checkpoints; by default the value of DAGSTER_CKPT_STORE."
JSON_HELP = "Print one JSON document, for programs."
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

at_epoch = click.option(
    "--epoch", type=argument_values.number, metavar="EPOCH", help="Which epoch; without it the current one."
)
as_of_time = click.option(
    "--as-of",
    type=argument_values.time,
    metavar="TIME",
    help="The newest epoch committed by then: 2013-01-05T12:00 (UTC).",
)
at_most = click.option(
    "--limit", type=argument_values.number, metavar="ROWS", help="The most rows to print (tables: 50, --json: all)."
)
only_columns = click.option(
    "--columns",
    metavar="A,B,...",
    callback=lambda _context, _option, given: None if given is None else argument_values.names(given),
    help="Only these columns, in this order; names with commas as a JSON list.",
)
fencing = click.option("--fence", is_flag=True, help="Stop a live writer instead of refusing.")
unasked = click.option("--yes", is_flag=True, help="Do not ask.")


@dataclass(frozen=True)
class CommandRequest:
    """The common options of a command: the store, and whether the output is JSON."""

    store: CheckpointStore
    for_programs: bool

    def show(
        self,
        table: Callable[Found, None],
        document: Callable[Found, Document],
        /,
        *found: Found.args,
        **more: Found.kwargs,
    ) -> None:
        """Print the result: `table` prints it for people; what `document` returns is printed for programs."""
        if self.for_programs:
            from dagster_ckpt.cli.json_text import json_text

            click.echo(json_text(document(*found, **more)))
        else:
            table(*found, **more)


class FriendlyGroup(click.Group):
    """Prints our errors as messages: a traceback would not help a user of this command."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CheckpointError as error:
            raise click.ClickException(str(error)) from error


def takes_request(command: Callable[Concatenate[CommandRequest, Rest], None]) -> Callable[..., None]:
    """Pass the command its request. `--store` and `--json` may come before or after the command's name.

    pyarrow and all that reads a store are imported here and in the commands, when one runs: this keeps `--help` fast.
    """

    @click.option("--store", "url", metavar="URL", help=STORE_HELP)
    @click.option("--json", "output", flag_value="json", help=JSON_HELP)
    @click.pass_context
    @wraps(command)
    def with_request(
        context: click.Context, /, url: str | None, output: str | None, *rest: Rest.args, **options: Rest.kwargs
    ) -> None:
        common = context.find_root().params
        url = url or common["url"]
        if not url:
            raise click.UsageError("which store? Give --store URL, or set DAGSTER_CKPT_STORE.", context)
        from dagster_ckpt.history import CheckpointStore

        command(CommandRequest(CheckpointStore(url), (output or common["output"]) == "json"), *rest, **options)

    return with_request


def at_one_epoch(epoch: int | None, as_of: datetime | None, options: str = "--epoch or --as-of") -> None:
    """Raises `click.UsageError` if an epoch was given both by number and by time."""
    if epoch is not None and as_of is not None:
        raise click.UsageError(f"give {options}, not both.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before history is changed, on stderr; ends the command if the answer is no, or there is no terminal."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C, or no terminal
        agreed = False
        click.echo(err=True)
    if not agreed:
        click.echo("Nothing was changed. Pass --yes to skip the question.", err=True)
        raise SystemExit(1)
