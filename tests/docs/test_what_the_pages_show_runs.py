"""Each `dagster-ckpt` line of the pages, and the Python that reads a store, as they stand, on such a store."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt import CheckpointStore, Snapshot
from dagster_ckpt.cli.command import main
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from tests.unit.history.made_streams import MadeStream, departures
from tests.unit.history.reading_streams import MadeStreams

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OPERATIONS = {page.name: page.read_text() for page in sorted((ROOT / "docs/operations").glob("*.md"))}
PAGES = "\n".join([README, *OPERATIONS.values()])
LINES = list(dict.fromkeys(re.findall(r"^ +(?:\$ )?(dagster-ckpt .*)$", PAGES, re.MULTILINE)))
PYTHON = {  # by page: the blocks that read a store
    name: blocks
    for name, page in OPERATIONS.items()
    if (
        blocks := [
            block
            for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
            if re.search(r"^stream\b|^store\b", block, re.MULTILINE)
        ]
    )
}
NEEDS_MORE = ("class-archive", "rebuild", "restart-steps", "from-epoch")
"""What needs Spark, or an instance of Dagster, and has a test of its own."""
A_TIME = "2013-01-05T12:00"
STORE = "file:///data/checkpoints"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`delay_by_carrier` at epoch 43, which `late_carriers` has consumed; 41 is pinned as in the pages."""
    root = tmp_path_factory.mktemp("made")
    streams = MadeStreams(root)
    delays = MadeStream(root.as_uri(), "delay_by_carrier")
    while delays.commit(departures({"UA": [1.0], "AA": [2.0, 3.0]})) < 43:
        pass
    late = streams.reader("late_carriers", delays)
    late.read(delays)
    reader = Subscriber("late_carriers", late.writer.manifest.uuid, delays.writer.manifest.epoch)
    subscribe(ManifestChain(delays.writer.store, SystemClock()), reader)
    streams.close()
    delays.close()
    CheckpointStore(root.as_uri()).stream("delay_by_carrier").pin(41, "before-migration")
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(shutil.copytree(made, tmp_path / "store").as_uri())


def as_of_now(text: str, store: CheckpointStore) -> str:
    return text.replace(A_TIME, store.stream("delay_by_carrier").latest().committed_at.isoformat())


def test_the_pages_show_every_command() -> None:
    assert {shlex.split(line)[1] for line in LINES} == main.commands.keys()


@pytest.mark.parametrize("line", [line for line in LINES if shlex.split(line)[1] not in NEEDS_MORE])
def test_a_line_of_the_pages_does_what_it_says(
    line: str, store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(as_of_now(line, store), comments=True)[1:]
    if "--pin" in words:  # of the savepoint that the page shows before
        streams = [word for word in words if word in store.streams()]
        store.savepoint(words[words.index("--pin") + 1], streams)
    ran = CliRunner().invoke(main, words, input="y\n", env={"DAGSTER_CKPT_STORE": store.url})
    assert ran.exit_code == 0, ran.output
    assert ran.stdout


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs(page: str, store: CheckpointStore) -> None:
    names: dict[str, object] = {}
    for block in PYTHON[page]:
        exec(as_of_now(block.replace(STORE, store.url), store), names)


def test_the_pages_on_reading_the_past_and_subscribers_show_python(store: CheckpointStore) -> None:
    assert {name: len(blocks) for name, blocks in PYTHON.items()} == {"history.md": 1, "read.md": 2, "retention.md": 1}
    names: dict[str, object] = {}
    exec(PYTHON["retention.md"][0].replace(STORE, store.url), names)
    assert store.stream("delay_by_carrier").subscribers() == []
    exec("\n".join(PYTHON["read.md"]).replace(STORE, store.url).replace(A_TIME, as_of_now(A_TIME, store)), names)
    snapshot = names["snapshot"]
    assert isinstance(snapshot, Snapshot)
    assert snapshot.epochs["delay_by_carrier"] == 43
