"""`docs/reference/cli.md` is made from the command, and says all that it says."""

from pathlib import Path

import click

from dagster_ckpt.cli.command import main
from scripts.cli_reference import page

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE, "run: .venv/bin/python -m scripts.cli_reference >docs/reference/cli.md"


def test_every_command_and_option_is_on_the_page() -> None:
    sections = {section.split("\n", 1)[0].strip("`"): section for section in PAGE.split("\n## ")[1:]}
    assert list(main.commands) != []
    for name, command in main.commands.items():
        for parameter in command.params:
            where = sections["Options of every command" if {"--store", "--json"} & {*parameter.opts} else name]
            shown = f"`{parameter.opts[0]}`" if isinstance(parameter, click.Option) else "    dagster-ckpt "
            assert shown in where, f"{name} {parameter.opts}"
