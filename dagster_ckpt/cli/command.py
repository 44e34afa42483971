"""The command `dagster-ckpt`: its options and all commands.

Exit status: 0 done, 1 failed (a short message on stderr gives the reason) or `verify` found damage, 2 usage error.
"""

from pathlib import Path

import click

from dagster_ckpt.cli import actions, queries
from dagster_ckpt.cli.request import HELP, JSON_HELP, STORE_HELP, FriendlyGroup


@click.group(cls=FriendlyGroup, context_settings=HELP)
@click.option("--store", "url", envvar="DAGSTER_CKPT_STORE", metavar="URL", help=STORE_HELP)
@click.option("--json", "output", flag_value="json", help=JSON_HELP)
@click.version_option(package_name="dagster-ckpt")
def main(url: str | None, output: str | None) -> None:
    """Inspect and operate the checkpoints of streaming assets.

    \b
    dagster-ckpt --store file:///data/checkpoints streams
    dagster-ckpt --store file:///data/checkpoints read delay_by_carrier --limit 10

    All commands can be used while the streams run. Those that change history ask first, and refuse if a writer is live.
    """  # noqa: D301  (click's mark of a paragraph that keeps its lines is a backspace character)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a project with two streams in FOLDER, with data to try them with.

    FOLDER must be new or empty. The project runs as it is: `dagster dev` in it starts the streams.
    """
    from dagster_ckpt.cli.progress import shown_wait
    from dagster_ckpt.cli.project import create, missing

    with shown_wait("Making the project and its first data"):
        create(folder)
    click.echo(f"Made {folder}: two streams in definitions.py, their first rows in data.\n")
    for each in missing():
        click.echo(f"Missing: {each}")
    click.echo(f"Start it with\n\n    cd {folder}\n    dagster dev\n\nand open http://localhost:3000.")


@main.command()
def class_archive() -> None:
    """Make Spark start in two thirds of the time.

    Writes an archive of the classes that its JVM loads, 170 MB, beside Spark; every stream that starts from this
    installation uses it from then on. Takes half a minute, once for each installation of Spark or Java.
    """
    import os

    from dagster_ckpt.cli.progress import shown_wait
    from dagster_ckpt.runtime.spark.class_archive import archive_path, make_archive

    archive = archive_path(os.environ)
    if archive is None:
        raise click.ClickException("Spark not found: install pyspark, or set SPARK_HOME.")
    with shown_wait("Running a small stream, then Java archives its classes"):
        make_archive(os.environ, archive)
    click.echo(f"Wrote {archive}: {archive.stat().st_size / 1e6:.0f} MB. Spark's next JVM starts with it.")


for _command in (*queries.COMMANDS, *actions.COMMANDS):
    main.add_command(_command)
