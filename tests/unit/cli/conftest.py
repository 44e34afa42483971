from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagster_ckpt.cli import main
from tests.unit.history.made_streams import MadeStream, append, departures

Command = Callable[..., Result]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a keyed stream of two epochs, an append-only one and one that has committed nothing."""
    keyed = MadeStream(tmp_path.as_uri(), "flights/delays")
    keyed.commit(departures({"UA": [1.0, 5.0], None: [3.0]}), hours=2)
    keyed.commit(departures({"UA": [6.0], "AA": [float("nan")]}))
    appended = MadeStream(tmp_path.as_uri(), "departures", append())
    appended.commit(departures({"UA": [1.0] * 60}))
    empty = MadeStream(tmp_path.as_uri(), "empty")
    for stream in (keyed, appended, empty):
        stream.close()
    return tmp_path.as_uri()


@pytest.fixture
def command(url: str) -> Command:
    """Runs `dagster-ckpt` with these words over the store."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["--store", url, *words])

    return run
