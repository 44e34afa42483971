"""Which files of an append-only stream's table to merge. A pure choice: `append_files` carries it out.

Each epoch appends its files, mostly small ones, to the table's list. Only neighbours are ever merged, so the rows keep
their order. A file's name has the number of times its rows were merged (`object_names.merges_of`). A file that has half
of `bytes_max`, or was merged `merges_max` times, or is in another stream's folder is left alone for ever. The others
form stretches between those. The last stretch is open: the next epoch appends to it.

    ripe                                                     what it becomes
    `files_min` neighbours in the open stretch that were     one file. When n files came in, each row is merged at
    merged equally often                                     most log(n) times in this way, to the base `files_min`
    a stretch of at least half of `bytes_max`                one file that is left alone
    a stretch that is not open                               one file: it will never get another neighbour

An epoch carries out one merge, the one with the most files, the oldest of equals. So it never costs more than reading
and writing `bytes_max`, and a row is merged at most `merges_max` times. If nothing is ripe, a list has no more than
`files_min - 1` files of each number of merges, and two for each one that is left alone. In between it has at most as
many more as an epoch brings, times the distinct numbers of merges: a stretch that grows longer than that is the one
with the most files.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from dagster_ckpt.protocol.ack import FilesMerged
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.protocol.object_names import merge_count


@dataclass(frozen=True, slots=True)
class FileMergeLimits:
    """When files are merged, and when they are left alone.

    More than 32 files at once would leave more of them unmerged; fewer would write each row more often.
    """

    files_min: int = 32
    merges_max: int = 8
    bytes_max: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileMerge:
    """Neighbours in the table's list, at least two, and how often their rows will have been merged afterwards."""

    files: tuple[ChangeRef, ...]
    merges: int


def choose(tail: Sequence[ChangeRef], limits: FileMergeLimits) -> FileMerge | None:
    """Which of the newest files of a table's list to merge; None: nothing."""
    ripe = [files for stretch in _stretches(tail, limits) for files in _ripe(stretch, limits)]
    if not ripe:
        return None
    files = max(ripe, key=len)
    return FileMerge(files, 1 + max(merge_count(file.path) for file in files))


def with_merged(tail: tuple[ChangeRef, ...], merges: Iterable[FilesMerged]) -> tuple[ChangeRef, ...]:
    """The list with each merged file in place of its inputs, which must be neighbours there."""
    for merged in merges:
        count = len(merged.replaced)
        places = [at for at, file in enumerate(tail) if file.name == merged.replaced[0]]
        first = places[0] if places else len(tail)
        gone = tail[first : first + count]
        assert tuple(file.name for file in gone) == merged.replaced, (
            f"the merged files are not neighbours in the table's list. merged={merged.replaced}, "
            f"found={[file.name for file in gone]}"
        )
        rows = sum(file.rows for file in gone)
        assert merged.file.rows == rows, (
            f"a merged file lacks rows of its inputs, or has more. file={merged.file.path}, rows={merged.file.rows}, "
            f"expected={rows}"
        )
        tail = (*tail[:first], merged.file, *tail[first + count :])
    return tail


@dataclass(frozen=True, slots=True)
class _Stretch:
    files: tuple[ChangeRef, ...]
    is_open: bool


def _stretches(tail: Sequence[ChangeRef], limits: FileMergeLimits) -> Iterator[_Stretch]:
    held: list[ChangeRef] = []
    for file in tail:
        if _is_left_alone(file, limits):
            yield _Stretch(tuple(held), is_open=False)
            held = []
        else:
            held.append(file)
    yield _Stretch(tuple(held), is_open=True)


def _ripe(stretch: _Stretch, limits: FileMergeLimits) -> Iterator[tuple[ChangeRef, ...]]:
    bytes_until = list(accumulate(file.bytes for file in stretch.files))
    if len(stretch.files) < 2:
        return
    if not stretch.is_open or bytes_until[-1] >= limits.bytes_max // 2:
        # At least two, since each has less than half of it.
        yield stretch.files[: sum(until <= limits.bytes_max for until in bytes_until)]
        return
    for _, group in groupby(stretch.files, lambda file: merge_count(file.path)):
        files = tuple(group)
        if len(files) >= limits.files_min:
            yield files


def _is_left_alone(file: ChangeRef, limits: FileMergeLimits) -> bool:
    is_large = file.bytes >= limits.bytes_max // 2
    return is_large or merge_count(file.path) >= limits.merges_max or file.ancestor is not None
