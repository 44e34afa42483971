"""A store with the streams that the tutorial and the how-to pages name, and their `dagster-ckpt` lines run on it."""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from dagster_ckpt import CheckpointStore
from dagster_ckpt.cli.command import main
from tests.unit.history.made_streams import MadeStream, departures

STREAMS = ("delay_by_carrier", "late_carriers", "all_flights", "named_departures")
EPOCHS = 6
NEEDS_SPARK = ("class-archive",)


def make(root: Path) -> CheckpointStore:
    for name in STREAMS:
        stream = MadeStream(root.as_uri(), name)
        while stream.commit(departures({"UA": [1.0], "WN": [20.0]})) < EPOCHS:
            pass
        stream.close()
    return CheckpointStore(root.as_uri())


def lines_of(page: str) -> list[str]:
    """The `dagster-ckpt` lines of a page's indented blocks, without what follows a pipe."""
    return [line.partition(" | ")[0] for line in re.findall(r"^    (dagster-ckpt .*)$", page, re.MULTILINE)]


def python_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def run(line: str, store: CheckpointStore) -> str:
    """Its output. Epochs are those of the page, so one that this store does not have becomes one that it has."""
    words = shlex.split(line, comments=True)[1:]
    if words[0] in NEEDS_SPARK:
        assert words[0] in main.commands
        return "not run"
    if "--epoch" in words and words[words.index("--epoch") + 1] != "0":
        words[words.index("--epoch") + 1] = str(EPOCHS - 1)
    ran = CliRunner().invoke(main, words, input="y\n", env={"DAGSTER_CKPT_STORE": store.url})
    assert ran.exit_code == 0, f"{line}\n{ran.output}"
    return ran.stdout
