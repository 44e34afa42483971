"""What was built beside a stream takes its place: one epoch, with what differs between the two tables."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.history.swap import NotCaughtUpError, swap
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.kept_names import with_own_names
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    FilesMoved,
    IndexedList,
    InputSpec,
    Manifest,
    ManifestKind,
    Owner,
)
from dagster_ckpt.protocol.manifest.references import ancestors_named, references
from dagster_ckpt.protocol.object_names import FORK_PINS, folder_of, parse_file_name, pin_name
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import names_of_pins, read_pins, remove_pin
from dagster_ckpt.storage.retention_refs.subscribers import subscribe, unsubscribe
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.tables import net_changes
from tests.unit.history.made_streams import DEPARTURES, SHARDS, SOURCE, MadeStream, aggregate, append, departures
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_holder

NAME, BESIDE = "delays", "delays/~rebuild-1"
AT_ONCE_MS = -1_000
"""A grace period that is over at once, with the second that a collector waits longer."""
IMPATIENT = Patience(total_ms=10, pause_ms=1, pause_ms_max=1)


class Killed(BaseException):
    """The process is no more."""


def _other_aggregate(key: str = "carrier", **more: agg.Aggregation) -> RunningAggregate:
    """Flights, and the least delay in the place of the mean, by carrier; `key` is the code's name for that."""
    aggregations = {"flights": agg.count(), "least": agg.min("dep_delay"), **more}
    rows = DEPARTURES.set(0, DEPARTURES.field("carrier").with_name(key))
    return RunningAggregate.build((key,), aggregations, InputSpec((SOURCE,), rows))


@dataclass
class World:
    """A stream of three epochs, and one beside it that has read the same rows."""

    url: str
    stream: MadeStream
    beside: MadeStream

    @property
    def root(self) -> ObjectStore:
        return open_store(self.url)

    def chain(self, name: str = NAME, root: ObjectStore | None = None) -> ManifestChain:
        return ManifestChain(folder_store(root or self.root, folder_of(name.split("/"))), SystemClock(), IMPATIENT)

    def swap(self, root: ObjectStore | None = None, root_run: str = "rebuild") -> Manifest:
        root = root or self.root
        opening = Opening(
            stream=NAME,
            owner=Owner("instance-1", NAME),
            pipeline=self.beside.operator.pipeline,
            shards=SHARDS,
            holder=a_holder(),
            root_run=root_run,
            take_over=Takeover.ALWAYS,
        )
        return swap(root, self.chain(root=root), self.chain(BESIDE, root), opening)

    def files(self, name: str) -> set[str]:
        return {each for each in self.chain(name).store.list("") if parse_file_name(each) is not None}

    @property
    def history(self) -> StreamHistory:
        return CheckpointStore(self.url).stream(NAME)

    def net_changes(self, after: int, key: str = "carrier") -> dict[object, tuple[object, object]]:
        """The flights and least delays of the carriers whose rows have changed since."""
        newest, shown = self.history.epochs_after(after)
        schema = newest.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string()))
        store = with_ancestors(self.chain().store, self.root, newest.ancestors)
        named = [with_names_of(each, newest) for each in shown]
        batches = net_changes(store, SystemClock(), named, schema)
        rows = [row for batch in batches for row in batch.to_pylist()]
        come = [row for row in rows if row["_change_type"] in {"insert", "update_postimage"}]
        return {row[key]: (row["flights"], row["least"]) for row in come}

    def rows(self, epoch: int | None = None) -> list[dict[str, object]]:
        return sorted(self.history.read(epoch).to_pylist(), key=lambda row: str(row["carrier"]))


BATCHES: list[dict[str | None, list[float]]] = [
    {"UA": [1.0, 5.0], "AA": [2.0]},
    {"UA": [3.0], "DL": [4.0]},
    {"AA": [-1.0]},
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    url = tmp_path.as_uri()
    stream, beside = MadeStream(url, NAME, aggregate()), MadeStream(url, BESIDE, _other_aggregate())
    for rows in BATCHES:
        stream.commit(departures(rows))
        beside.commit(departures(rows))
    yield World(url, stream, beside)
    stream.close()
    beside.close()


def test_the_stream_shows_what_was_built_beside_it_and_its_log_the_difference(world: World) -> None:
    before = world.stream.writer.manifest.epoch
    swapped = world.swap()
    assert (swapped.kind, swapped.epoch) == (ManifestKind.SWAP, before + 1)
    assert world.rows() == [
        {"carrier": "AA", "flights": 2, "least": -1.0},
        {"carrier": "DL", "flights": 1, "least": 4.0},
        {"carrier": "UA", "flights": 3, "least": 1.0},
    ]
    assert [row["mean_delay"] for row in world.rows(before)] == [0.5, 4.0, 3.0]
    changes = world.history.changes(before).to_pylist()
    kinds = sorted((row["carrier"], row["_change_type"], row["least"]) for row in changes)
    assert kinds == [
        (carrier, kind, least if kind == "update_postimage" else None)
        for carrier, least in (("AA", -1.0), ("DL", 4.0), ("UA", 1.0))
        for kind in ("update_postimage", "update_preimage")
    ]


def test_a_column_renamed_after_the_swap_has_one_name_for_readers_from_before_it(world: World) -> None:
    before = world.stream.writer.manifest.epoch - 1
    world.swap()
    world.stream.close()
    renamed = with_own_names(_other_aggregate("airline"), {"airline": "carrier"}, None)
    assert renamed is not None
    follower = MadeStream(world.url, NAME, renamed)
    follower.commit(departures({"UA": [0.5]}))
    log = world.history.changes(before, columns=["airline", "flights"]).to_pylist()
    kinds = sorted((row["_epoch"] - before, row["airline"], row["_change_type"], row["flights"]) for row in log)
    assert [(row[0], row[1]) for row in kinds] == [
        *[(1, "AA")] * 2,
        *[(2, airline) for airline in ("AA", "AA", "DL", "DL", "UA", "UA")],
        *[(4, "UA")] * 2,
    ], "those of the old stream, the difference, and those of the new one"
    assert world.net_changes(before, "airline") == {"AA": (2, -1.0), "DL": (1, 4.0), "UA": (4, 0.5)}
    follower.close()


def test_rows_that_are_equal_in_what_both_have_are_no_change(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    fewer = RunningAggregate.build(("carrier",), {"flights": agg.count()}, InputSpec((SOURCE,), DEPARTURES))
    world = World(url, MadeStream(url, NAME, aggregate()), MadeStream(url, BESIDE, fewer))
    for made in (world.stream, world.beside):
        made.commit(departures(BATCHES[0]))
    assert world.swap().changes == ()


def test_a_stream_goes_on_behind_a_swap_and_back_over_it(world: World) -> None:
    before = world.stream.writer.manifest.epoch
    old = world.rows()
    world.swap()
    world.stream.close()
    follower = MadeStream(world.url, NAME, _other_aggregate())
    follower.commit(departures({"UA": [0.5], "B6": [9.0]}))
    assert [(row["carrier"], row["flights"], row["least"]) for row in world.rows()] == [
        ("AA", 2, -1.0),
        ("B6", 1, 9.0),
        ("DL", 1, 4.0),
        ("UA", 4, 0.5),
    ]
    assert world.net_changes(before) == {"AA": (2, -1.0), "B6": (1, 9.0), "DL": (1, 4.0), "UA": (4, 0.5)}
    assert len(world.history.changes(before)) == 2 * 3 + 2 + 1
    assert not world.history.verify().findings
    follower.close()
    world.history.rollback(before)
    assert world.rows() == old
    back = MadeStream(world.url, NAME, aggregate())
    back.commit(departures({"UA": [7.0]}))
    assert [row["flights"] for row in world.rows()] == [2, 1, 4]
    back.close()


def test_what_the_stream_needs_of_the_other_is_kept_and_let_go_of_once_it_needs_none(world: World) -> None:
    world.swap()
    collectors = [Collector(world.chain(name), world.root, grace_ms=0) for name in (NAME, BESIDE)]
    [pin] = read_pins(world.chain(BESIDE))
    for _ in range(40):
        world.beside.commit(departures({"XX": [1.0]}))  # it goes on, and retires what it had
    for collector in collectors:
        collector.collect()
    assert [row["flights"] for row in world.rows()] == [2, 1, 3]
    assert not world.history.verify().findings
    world.stream.close()
    follower = MadeStream(world.url, NAME, _other_aggregate(), retained=2)
    follower.open(from_epoch=0)
    for _ in range(40):
        follower.commit(departures({"UA": [1.0]}))
    time.sleep(1.1)  # by whole seconds, as some stores have it, what is younger may be in use
    collectors[0].collect()
    assert pin_name(pin.name) not in set(world.chain(BESIDE).store.list("pins"))
    follower.close()


def test_nothing_is_left_of_a_rebuilt_stream_but_what_the_stream_needs(world: World) -> None:
    world.beside.close()
    swapped = world.swap()
    world.stream.close()
    collector, there = Collector(world.chain(), world.root, grace_ms=AT_ONCE_MS), world.chain(BESIDE)
    before, rows = world.files(BESIDE), world.rows()
    collector.collect()
    collector.collect()
    [pin] = read_pins(there)
    assert world.files(BESIDE) == {ref.name for _, ref in references(pin.manifest) if ref.name.startswith("state/")}
    assert world.files(BESIDE) <= before
    assert world.rows() == rows
    assert not world.history.verify().findings
    assert world.history.fork("delays_forked").read().num_rows == len(rows)
    follower = MadeStream(world.url, NAME, _other_aggregate(), retained=2)
    follower.open(from_epoch=0)
    for _ in range(40):
        follower.commit(departures({"UA": [1.0]}))
    assert not ancestors_named(follower.writer.manifest)
    follower.close()
    shutil.rmtree(Path(world.url.removeprefix("file://")) / "delays_forked")
    for chain in (world.chain(), there):
        for name in names_of_pins(chain, FORK_PINS):
            if name != swapped.ancestors[-1].pin_of(swapped.uuid):
                remove_pin(chain, name)
    collector.collect()
    collector.collect()
    assert world.files(BESIDE) == set()
    assert {name.partition("/")[0] for name in there.store.list("")} <= {
        "manifest",
        "lease",
        "collector.json",
        "trimmed.json",
        "pins-changed.json",
        "verdicts",
    }
    assert swapped.ancestors[-1].stream == BESIDE


def test_what_others_read_of_a_rebuilt_stream_stays(world: World) -> None:
    world.beside.close()
    world.swap()
    there = world.chain(BESIDE)
    subscribe(there, Subscriber("audit", StreamUuid("a" * 32), Epoch(2)))
    before = world.files(BESIDE)
    Collector(world.chain(), world.root, grace_ms=AT_ONCE_MS).collect()
    assert world.files(BESIDE) == before
    unsubscribe(there, "audit")
    Collector(world.chain(), world.root, grace_ms=AT_ONCE_MS).collect()
    newest = there.newest()
    assert newest is not None
    assert [entry.epoch for entry in newest.retained] == [newest.epoch]


def test_killed_at_any_call_what_is_left_of_a_rebuilt_stream_goes_in_a_later_pass(world: World) -> None:
    world.beside.close()
    world.swap()
    world.stream.close()
    rows, calls = world.rows(), 0
    while True:
        left = calls

        def decide(call: Call) -> Fault:
            nonlocal left
            if left == 0 and call.verb not in {"get", "list", "exists"}:
                raise Killed
            left -= call.verb not in {"get", "list", "exists"}
            return Fault.NONE

        root = FaultyStore(world.root, decide)
        try:
            Collector(world.chain(root=root), root, grace_ms=AT_ONCE_MS).collect()
        except Killed:
            assert world.rows() == rows
            assert not world.history.verify().findings
            calls += 1
            continue
        break
    assert calls > 3
    assert world.rows() == rows


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_nothing_or_all_is_done_and_the_same_request_again_does_it_once(
    world: World, when: str, tmp_path: Path
) -> None:
    old, epoch = world.rows(), world.stream.writer.manifest.epoch
    calls = 0
    while True:
        left = calls

        def decide(call: Call) -> Fault:
            nonlocal left
            if left == 0 and when == "before":
                raise Killed
            left -= 1
            return Fault.NONE

        world.beside.open()  # as the next try does
        root = FaultyStore(world.root, decide)
        try:
            world.swap(root, f"rebuild-{calls}")
        except Killed:
            newest = world.chain().newest()
            assert newest is not None
            if newest.kind is ManifestKind.SWAP:
                break
            assert world.rows() == old
            assert newest.epoch == epoch
            calls += 1
            continue
        break
    again = world.swap(root_run=f"rebuild-{calls}")
    assert again.epoch == epoch + 1
    assert [row["least"] for row in world.rows()] == [-1.0, 4.0, 1.0]
    assert len(read_pins(world.chain(BESIDE))) >= 1
    assert not world.history.verify().findings


def test_of_two_requests_at_once_one_after_the_other_is_done(world: World) -> None:
    done: list[Manifest] = []

    def decide(call: Call) -> Fault:
        if not done and call.verb == "put_if_absent" and f"{NAME}/manifest/0" in call.name:
            done.append(world.swap(root_run="another"))
        return Fault.NONE

    mine = world.swap(FaultyStore(world.root, decide), "mine")
    assert [mine.epoch - 1, mine.parent] == [done[0].epoch, done[0].version]
    assert [row["least"] for row in world.rows()] == [-1.0, 4.0, 1.0]


def test_one_that_has_read_less_does_not_take_over(world: World) -> None:
    world.stream.commit(departures({"UA": [2.0]}))
    with pytest.raises(NotCaughtUpError, match=r"has not read all that the stream has.*departures"):
        world.swap()
    world.beside.commit(departures({"UA": [2.0]}))
    world.beside.commit(departures({"UA": [0.0]}))
    swapped = world.swap()
    assert [row["flights"] for row in world.rows()] == [2, 1, 5]
    assert len(swapped.sources[0].files.tail) == 5


def read_another_file(
    world: World, monkeypatch: pytest.MonkeyPatch, other: Callable[[FileSeen], FileSeen], *moved: FilesMoved
) -> None:
    """Both have read one more file with the same rows: the one beside another file than the stream."""
    world.stream.commit(departures({"UA": [2.0]}))
    [position] = world.beside.positions(3)
    *before, last = position.files.tail
    position = replace(position, files=IndexedList(tail=(*before, other(last))), moved=moved)
    monkeypatch.setattr(world.beside, "positions", lambda batch: (position,))
    world.beside.commit(departures({"UA": [2.0]}))


@pytest.mark.parametrize(("later_ms", "is_behind"), [(-1, True), (0, False), (1, False)])
def test_one_that_has_read_a_file_before_it_was_replaced_does_not_take_over(
    world: World, monkeypatch: pytest.MonkeyPatch, later_ms: int, *, is_behind: bool
) -> None:
    read_another_file(world, monkeypatch, lambda file: replace(file, modified_ms=file.modified_ms + later_ms))
    if not is_behind:
        assert world.swap().kind is ManifestKind.SWAP
        return
    with pytest.raises(NotCaughtUpError, match=r"1 files, the first is file:///data/departures/3\.parquet"):
        world.swap()


@pytest.mark.parametrize(("name", "is_behind"), [("3.parquet", False), ("new.parquet", True)])
def test_of_files_that_were_moved_the_names_are_compared(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, *, is_behind: bool
) -> None:
    moved = FilesMoved("file:/data", "file:/now", 3)
    read_another_file(world, monkeypatch, lambda file: replace(file, path=f"file:///now/departures/{name}"), moved)
    if not is_behind:
        assert world.swap().kind is ManifestKind.SWAP
        return
    with pytest.raises(NotCaughtUpError, match=r"1 files, the first is 3\.parquet"):
        world.swap()


def test_one_that_has_read_other_files_does_not_take_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read_another_file(world, monkeypatch, lambda file: replace(file, path="file:///data/elsewhere/3.parquet"))
    with pytest.raises(
        NotCaughtUpError, match=r"departures \(1 files, the first is file:///data/departures/3.parquet\)"
    ):
        world.swap()


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        (append(), "a table that only grows takes no row back"),
        (
            RunningAggregate.build(("carrier",), {"flights": agg.max("carrier")}, InputSpec((SOURCE,), DEPARTURES)),
            r"column 'flights' has another type: int64 before, string now. Give it another name",
        ),
    ],
)
def test_a_table_that_readers_could_not_follow_does_not_take_over(
    tmp_path: Path, operator: RunningAggregate, why: str
) -> None:
    url = tmp_path.as_uri()
    world = World(url, MadeStream(url, NAME, aggregate()), MadeStream(url, BESIDE, operator))
    for made in (world.stream, world.beside):
        made.commit(departures(BATCHES[0]))
    before = world.chain().newest()
    with pytest.raises(InvalidPipelineError, match=why):
        world.swap()
    assert world.chain().newest() == before
