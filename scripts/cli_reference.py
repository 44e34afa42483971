"""Prints docs/reference/cli.md, made from the command itself: scripts/cli_reference.py >docs/reference/cli.md."""

import inspect
from collections.abc import Iterator

import click

from dagster_ckpt.cli.command import main

HEADER = """\
# Command line

<!-- Made from the command by scripts/cli_reference.py; a test compares them. -->

`dagster-ckpt` reads and operates a store from a shell. It needs neither Spark nor Dagster (`class-archive` and `init`
aside), and may be used while the streams run. `dagster-ckpt COMMAND --help` shows what this page does.

    export DAGSTER_CKPT_STORE=file:///data/checkpoints
    dagster-ckpt streams

The exit status:

| | |
|---|---|
| 0 | done |
| 1 | failed: a short message on stderr gives the reason. Also if you decline a question, or if `verify` finds damage |
| 2 | wrong usage, such as an unknown option |

Times are shown in UTC, and a `TIME` without an offset is UTC: `2013-01-05T12:00`. A `DURATION` is a number with a unit:
`30s`, `6 hours`. A `STREAM` is an asset key, its parts joined with `/`.
"""
BAR = "\\|"
EVERYWHERE = {"--store", "--json", "--help"}
"""Options of every command: listed once. They may come before or after the command's name."""


def page() -> str:
    """The whole page."""
    context = click.Context(main, info_name="dagster-ckpt", **main.context_settings)
    parts = [HEADER, "## Options of every command\n", table(main, context, set())]
    for name in main.list_commands(context):
        command = main.commands[name]
        inner = click.Context(command, info_name=name, parent=context)
        options = table(command, inner, EVERYWHERE)
        usage = [piece for piece in command.collect_usage_pieces(inner) if options or piece != "[OPTIONS]"]
        summary, *more = paragraphs(command)
        line = " ".join(["    dagster-ckpt", name, *usage]) + "\n"
        parts += [f"## `{name}`\n", summary, line, *more, *filter(None, [options])]
    return "\n".join(parts)


def paragraphs(command: click.Command) -> Iterator[str]:
    """The help's paragraphs; one that keeps its lines (click marks it so) is an example."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        kept = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        yield "\n".join(f"    dagster-ckpt {line}" for line in lines) + "\n" if kept else paragraph + "\n"


def table(command: click.Command, context: click.Context, left_out: set[str]) -> str:
    """The command's options; empty if it has none."""
    rows = []
    for option in command.get_params(context):
        if not isinstance(option, click.Option) or left_out & {*option.opts}:
            continue
        names = ", ".join(f"`{name}`" for name in option.opts)
        kind = option.type
        takes = option.metavar or ("|".join(kind.choices) if isinstance(kind, click.Choice) else "")
        default = "required" if option.required else f"`{option.default}`" if option.show_default else ""
        cells = (f"{names} `{takes}`" if takes else names, default, option.help or "")
        rows.append(" ".join(["|", *(f"{cell.replace('|', BAR)} |" for cell in cells)]))
    return "\n".join(["| option | default | |", "|---|---|---|", *rows]) + "\n" if rows else ""


if __name__ == "__main__":
    print(page(), end="")
