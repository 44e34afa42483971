"""Whatever comes in, and however much smaller it gets: the list of an append-only stream's files stays short."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.ack import FilesMerged
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.protocol.object_names import FileId, changes_name, merge_count, merged_name
from dagster_ckpt.protocol.transitions.append_merges import FileMergeLimits, choose, with_merged
from tests.worlds.examples import examples

LIMITS = FileMergeLimits(files_min=3, merges_max=4, bytes_max=1000)
LARGE = LIMITS.bytes_max // 2


class Table:
    """A table's list of files, and which of those that came in are in each."""

    def __init__(self) -> None:
        self.tail: tuple[ChangeRef, ...] = ()
        self.held: dict[str, tuple[int, ...]] = {}
        self.merges: list[int] = []
        self._epoch = 1

    def epoch(self, sizes: list[int], shrink: float) -> bool:
        """An epoch that brings files of these sizes; a file made of several has `shrink` of their bytes."""
        self._epoch += 1
        merge = choose(self.tail, LIMITS)
        if merge is not None:
            size = sum(file.bytes for file in merge.files)
            assert size <= LIMITS.bytes_max
            assert len(merge.files) > 1
            names = tuple(file.path for file in merge.files)
            rows = sum(file.rows for file in merge.files)
            merged = self._file(merged_name(merge.merges, self._id(0)), max(1, round(shrink * size)), rows)
            self.tail = with_merged(self.tail, [FilesMerged(names, merged)])
            self.held[merged.path] = tuple(one for name in names for one in self.held.pop(name))
            for one in self.held[merged.path]:
                self.merges[one] += 1
        for number, size in enumerate(sizes):
            file = self._file(changes_name(self._id(number)), size, 1)
            self.tail = (*self.tail, file)
            self.held[file.path] = (len(self.merges),)
            self.merges.append(0)
        return merge is not None

    def everything(self) -> Iterator[int]:
        """All that came in, in the order of the list."""
        for file in self.tail:
            yield from self.held[file.path]

    @property
    def left_alone(self) -> int:
        return sum(file.bytes >= LARGE or merge_count(file.path) >= LIMITS.merges_max for file in self.tail)

    def _id(self, number: int) -> FileId:
        return FileId(Term(1), Epoch(self._epoch), Shard(0), 0, number)

    def _file(self, name: str, size: int, rows: int) -> ChangeRef:
        return ChangeRef(name, rows, size, "c", Epoch(self._epoch), Shard(0))

    def check(self) -> None:
        assert list(self.everything()) == list(range(len(self.merges))), "nothing is lost, doubled or moved"
        assert max(self.merges, default=0) <= LIMITS.merges_max
        for file in self.tail:
            for one in self.held[file.path]:
                assert self.merges[one] <= merge_count(file.path), "the name says how often at most"


ANY_SIZES = st.lists(st.integers(1, 20) | st.integers(1, 700), max_size=9)
SHRINKS = st.floats(0.05, 1.02)


@examples(150)
@given(st.lists(st.tuples(ANY_SIZES, SHRINKS), max_size=80))
def test_no_file_is_lost_and_none_merged_too_often_whatever_comes(epochs: list[tuple[list[int], float]]) -> None:
    table = Table()
    for sizes, shrink in epochs:
        table.epoch(sizes, shrink)
        table.check()
    while table.epoch([], 1.0):
        table.check()
    # At rest.
    assert len(table.tail) <= 2 * table.left_alone + LIMITS.merges_max * (LIMITS.files_min - 1)


@st.composite
def steady(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """How many files an epoch brings at most, and the files of each: no more than half of what one may merge."""
    files = draw(st.integers(1, 12))
    size = st.integers(1, max(1, (LARGE - 1) // files))
    return files, draw(st.lists(st.lists(size, max_size=files), max_size=150))


@examples(150)
@given(steady())
def test_the_list_never_grows_long_while_epochs_are_not_large(stream: tuple[int, list[list[int]]]) -> None:
    files, epochs = stream
    table = Table()
    for sizes in epochs:
        table.epoch(sizes, 1.0)
        table.check()
        most = max((merge_count(file.path) for file in table.tail), default=0)
        bound = table.left_alone + (most + 1) * max(files, LIMITS.files_min - 1) + files
        assert len(table.tail) <= bound, (len(table.tail), bound)
        # A file in which all was merged so often holds at least so many.
        for file in table.tail:
            assert len(table.held[file.path]) >= LIMITS.files_min ** (merge_count(file.path) - 1)
