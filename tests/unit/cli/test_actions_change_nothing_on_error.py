"""Every command against a wrong name, a retired epoch, a live writer and damage: exit status 1, nothing changed.

A new command is a new line in `COMMANDS`.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagster_ckpt.cli import main
from dagster_ckpt.cli.command import main as group
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.lease import encode_lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations import manual_opening
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from tests.unit.history.made_streams import MadeStream, departures

NAME = "flights/delays"
RETIRED, RETAINED = 2, 4  # the newest epoch is 5, two are retained
NEWEST_MANIFEST = "manifest/00000000000000000005.json"
RETAINED_MANIFEST = "manifest/00000000000000000004.json"
A_STATE_FILE = "state/*/*/*-5-*.arrow"
THE_PIN = "pins/kept.json"


@dataclass(frozen=True)
class Line:
    """A command and what stops it.

    `words` say `STREAM` and `EPOCH` where those stand. `stopped_by` are objects without which it can do nothing; it may
    well do without others. `beside_a_writer`: whether it works while a writer is live.
    """

    words: str
    stopped_by: tuple[str, ...] = ()
    beside_a_writer: bool = True

    def arguments(self, name: str = NAME, epoch: int = RETAINED) -> list[str]:
        """The words as the shell hands them over."""
        return [{"STREAM": name, "EPOCH": str(epoch)}.get(word, word) for word in self.words.split()]


COMMANDS = [
    Line("epochs STREAM", stopped_by=(NEWEST_MANIFEST, RETAINED_MANIFEST, THE_PIN)),
    Line("show STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("show STREAM --epoch EPOCH", stopped_by=(RETAINED_MANIFEST,)),
    Line("explain STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("explain STREAM --epoch EPOCH", stopped_by=(RETAINED_MANIFEST,)),
    Line("read STREAM", stopped_by=(NEWEST_MANIFEST, A_STATE_FILE)),
    Line("read STREAM --epoch EPOCH", stopped_by=(RETAINED_MANIFEST,)),
    Line("get STREAM --key carrier=UA", stopped_by=(NEWEST_MANIFEST, A_STATE_FILE)),
    Line("get STREAM --key carrier=UA --epoch EPOCH", stopped_by=(RETAINED_MANIFEST,)),
    Line("changes STREAM --after 4", stopped_by=(NEWEST_MANIFEST, A_STATE_FILE)),  # a change log outlives its epoch
    Line("verify STREAM", stopped_by=(NEWEST_MANIFEST, RETAINED_MANIFEST, A_STATE_FILE, THE_PIN)),
    Line("pins STREAM", stopped_by=(THE_PIN,)),
    Line("subscribers STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("snapshot STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("unsubscribe STREAM reader --yes"),
    Line("pin STREAM other --epoch EPOCH", stopped_by=(NEWEST_MANIFEST, RETAINED_MANIFEST)),
    Line("savepoint together STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("unpin STREAM kept --yes"),
    Line("fork STREAM dev --epoch EPOCH --yes", stopped_by=(RETAINED_MANIFEST,)),
    Line("gc STREAM --yes", stopped_by=(NEWEST_MANIFEST, RETAINED_MANIFEST, THE_PIN)),
    Line("drain STREAM", stopped_by=(NEWEST_MANIFEST,)),
    Line("rollback STREAM --epoch EPOCH --yes", stopped_by=(RETAINED_MANIFEST,), beside_a_writer=False),
    Line("rollback STREAM --pin kept --yes", stopped_by=(RETAINED_MANIFEST, THE_PIN), beside_a_writer=False),
    Line("reshard STREAM --shards 8 --yes", stopped_by=(NEWEST_MANIFEST,), beside_a_writer=False),
]
OTHERWISE = {
    "rebuild": "Dagster changes the store: tests/dagster/test_the_command_that_rebuilds.py",
    "restart-steps": "Dagster changes the store: tests/dagster/test_the_command_that_rebuilds.py",
    "from-epoch": "Dagster changes the store: tests/dagster/test_the_command_that_rebuilds.py",
    "class-archive": "no store",
    "init": "no store",
    "streams": "no stream: tests/unit/cli/test_command_mistakes.py",
}
"""Commands that none of it concerns, and why."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose stream has ended: epochs 4 and 5 are retained, 4 is pinned, and another stream reads it."""
    root = tmp_path_factory.mktemp("made")
    stream = MadeStream(root.as_uri(), NAME, retained=2)
    for delay in range(4):
        stream.commit(departures({"UA": [float(delay)], "AA": [1.0]}))
    stream.close()
    chain = ManifestChain(stream.writer.store, SystemClock())
    subscribe(chain, Subscriber("reader", StreamUuid("e" * 32), Epoch(RETAINED)))
    assert run(root, Line("pin STREAM kept --epoch EPOCH")).exit_code == 0
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def run(store: Path, line: Line, name: str = NAME, epoch: int = RETAINED) -> Result:
    return CliRunner().invoke(main, ["--store", store.as_uri(), *line.arguments(name, epoch)])


def objects(store: Path) -> dict[str, bytes]:
    """What the store holds, except advice that a live writer and a collector write anew all the time."""
    files = {str(path.relative_to(store)): path for path in store.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in files.items() if "/lease/" not in name and "collector" not in name
    }


def refused(store: Path, line: Line, name: str = NAME, epoch: int = RETAINED) -> str:
    """What is told of a command that must not be done and must have changed nothing."""
    before = objects(store)
    result = run(store, line, name, epoch)
    assert result.exit_code == 1, result.output
    assert objects(store) == before
    assert "Traceback" not in result.output
    return result.stderr or result.stdout  # what `verify` finds is its answer


def test_every_command_has_its_line() -> None:
    assert {line.words.split()[0] for line in COMMANDS} | OTHERWISE.keys() == group.commands.keys()


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.words)
def test_the_error_for_a_wrong_name_suggests_the_right_one(store: Path, line: Line) -> None:
    told = refused(store, line, name="flights/delay")
    assert "no such stream" in told
    assert "Did you mean 'flights/delays'?" in told


@pytest.mark.parametrize("line", [each for each in COMMANDS if "EPOCH" in each.words], ids=lambda line: line.words)
def test_the_error_for_a_retired_epoch_lists_the_retained_ones(store: Path, line: Line) -> None:
    told = refused(store, line, epoch=RETIRED)
    assert "retained" in told
    assert str(RETAINED) in told


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.words)
def test_a_live_writer_is_left_alone(store: Path, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual_opening, "LEASE_TIMEOUT_MS", 500)
    stream = MadeStream(store.as_uri(), NAME, retained=2)
    with beating(stream):
        if line.beside_a_writer:
            assert run(store, line).exit_code == 0
        else:
            told = refused(store, line)
            assert "another Dagster run is writing this stream; it goes on unharmed" in told
            assert "--fence" in told
    assert stream.commit(departures({"UA": [9.0]})) == 7
    stream.close()


@pytest.mark.parametrize(
    ("line", "damaged"),
    [(line, damaged) for line in COMMANDS for damaged in line.stopped_by],
    ids=lambda each: each.words if isinstance(each, Line) else each,
)
def test_the_error_for_damage_names_the_object(store: Path, line: Line, damaged: str) -> None:
    paths = list((store / "flights.delays").glob(damaged))
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    told = refused(store, line)
    assert any(path.name in told for path in paths)


@contextmanager
def beating(stream: MadeStream) -> Iterator[None]:
    """While it lasts the stream's lease is that of a writer with little patience, and beats."""
    stream.writer.heartbeat.stop()
    ended, beating = threading.Event(), threading.Event()

    def beat() -> None:
        lease = replace(stream.writer.heartbeat.lease, timeout_ms=500)
        while not ended.wait(0.005):
            lease = lease.beaten(lease.epoch)
            stream.writer.store.put(lease_name(lease.term), encode_lease(lease))
            beating.set()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    beating.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()
