"""Several streams pinned under one name, and taken back together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli.command import main
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.history import CheckpointStore, StreamHistory, savepoint
from tests.unit.history.made_streams import MadeStream
from tests.unit.history.reading_streams import MadeStreams, ReadingStream


@dataclass
class Chain:
    """Three streams, each of which reads the one before; the last is an epoch behind."""

    made: MadeStreams
    a: MadeStream = field(init=False)
    b: ReadingStream = field(init=False)
    c: ReadingStream = field(init=False)

    def __post_init__(self) -> None:
        self.a = self.made.source("a", retained=2, epochs=2)
        self.b = self.made.reader("b", self.a, retained=2)
        self.c = self.made.reader("c", self.b, retained=2)
        self.round()
        self.b.read(self.a)

    def round(self) -> None:
        self.made.commit(self.a)
        self.b.read(self.a)
        self.c.read(self.b)

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.made.url)

    def epochs(self) -> dict[str, int]:
        return {name: self.store.stream(name).latest().epoch for name in ("a", "b", "c")}


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    monkeypatch.setattr(savepoint, "_IDLE_MS", 0)
    made = MadeStreams(tmp_path)
    yield Chain(made)
    made.close()


def test_streams_are_pinned_where_they_belong_together_and_taken_back_long_after(chain: Chain) -> None:
    pins = chain.store.savepoint("before", ["a", "b", "c"])
    at = {name: pin.epoch for name, pin in pins.items()}
    assert at == dict(chain.store.snapshot(["a", "b", "c"], "aligned").epochs)
    rows = {name: chain.store.stream(name).read(epoch).num_rows for name, epoch in at.items()}
    for _ in range(5):
        chain.round()
    chain.made.close()
    assert {name: info.epoch for name, info in chain.store.rollback(["a", "b", "c"], pin="before").items()} == at
    assert chain.epochs() == at
    assert {name: chain.store.stream(name).read().num_rows for name in at} == rows
    assert all(info.read == at[info.stream] for name in "bc" for info in chain.store.stream(name).upstreams())


def test_what_reads_another_goes_back_before_it(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.made.close()
    done: list[str] = []
    roll_back = StreamHistory.rollback

    def noted(self: StreamHistory, epoch: int, *, fence: bool = False) -> object:
        done.append(self.name)
        return roll_back(self, epoch, fence=fence)

    monkeypatch.setattr(StreamHistory, "rollback", noted)
    first = chain.store.snapshot(["a", "b", "c"], "aligned").info("c").committed_at
    chain.store.rollback(["a", "c", "b"], as_of=first)
    assert done == ["c", "b", "a"]


def test_nothing_is_changed_where_one_cannot_go_back(chain: Chain) -> None:
    before = chain.epochs()
    chain.store.stream("a").pin(before["a"], "before")
    with pytest.raises(InvalidPipelineError, match=r"there is no such pin.*stream='b'"):
        chain.store.rollback(["a", "b"], pin="before")
    with pytest.raises(InvalidPipelineError, match="Give as_of or pin"):
        chain.store.rollback(["a", "b"])
    with pytest.raises(InvalidPipelineError, match="a list of different names"):
        chain.store.rollback(["a", "a"], pin="before")
    assert chain.epochs() == before


def test_a_name_that_is_taken_pins_nothing(chain: Chain) -> None:
    chain.store.stream("c").pin(chain.epochs()["c"], "taken")
    with pytest.raises(InvalidPipelineError, match=r"taken by another pin.*stream='c'"):
        chain.store.savepoint("taken", ["a", "b", "c"])
    assert [len(chain.store.stream(name).pins()) for name in "abc"] == [0, 0, 1]


def test_after_an_error_halfway_none_is_pinned(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = StreamHistory.pin

    def failing(self: StreamHistory, epoch: int, name: str) -> object:
        if self.name == "c":
            raise StoreUnavailableError("the store does not answer")
        return pin(self, epoch, name)

    monkeypatch.setattr(StreamHistory, "pin", failing)
    with pytest.raises(StoreUnavailableError):
        chain.store.savepoint("before", ["a", "b", "c"])
    assert [chain.store.stream(name).pins() for name in "abc"] == [[], [], []]


def test_it_waits_for_the_epoch_in_work(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that may be at work is waited for until it has committed, or the time is up."""
    monkeypatch.setattr(savepoint, "_IDLE_MS", 10**9)
    with pytest.raises(StoreUnavailableError, match=r"no epoch was committed in time.*streams=\['a'\]"):
        chain.store.savepoint("before", ["a"], wait="300ms")
    looks: list[int] = []
    before = chain.epochs()["a"]
    latest = StreamHistory.latest

    def then_commits(self: StreamHistory) -> object:
        looks.append(1)
        if len(looks) == 3:
            chain.made.commit(chain.a)
        return latest(self)

    monkeypatch.setattr(StreamHistory, "latest", then_commits)
    assert chain.store.savepoint("before", ["a"])["a"].epoch == before + 1


def test_by_commands(chain: Chain) -> None:
    def command(*words: str) -> str:
        result = CliRunner().invoke(main, ["--store", chain.made.url, *words])
        assert result.exit_code == 0, result.output
        return result.output

    at = dict(chain.store.snapshot(["a", "b", "c"], "aligned").epochs)
    assert command("savepoint", "before", "a", "b", "c").splitlines() == [
        f"Epoch {epoch} of {name} is pinned as 'before'." for name, epoch in at.items()
    ]
    chain.round()
    chain.made.close()
    shown = command("rollback", "a", "b", "c", "--pin", "before", "--yes")
    assert shown.splitlines() == [
        f"{name} shows epoch {epoch}; its next Dagster run continues from there." for name, epoch in at.items()
    ]
    mistake = CliRunner().invoke(main, ["--store", chain.made.url, "rollback", "a", "b", "--epoch", "2", "--yes"])
    assert mistake.exit_code == 2
    assert "an epoch is that of one stream" in mistake.stderr
