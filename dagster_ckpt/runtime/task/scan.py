"""What Arrow reads in Spark's tasks in place of Spark: its rows never become rows of Spark's.

An input is read in pieces, which are spread over the tasks. What a task reads goes to the tasks of the first step as
tables (`PackedRows`).
"""

import zlib
from base64 import b85decode, b85encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa
from pyspark.serializers import CPickleSerializer

from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.epoch_task import SCAN_PROPERTY
from dagster_ckpt.runtime.task.packed_rows import PackedRows, pack_refusal

_TASK_BYTES = 1 << 28
_ALONE_BYTES = 1 << 22
"""So much is read by fewer tasks than can run at once, to shuffle nothing."""
_TABLE_BYTES = 1 << 24
"""About how many bytes of rows are brought to the tasks at once."""
REFUSED = (LeftToSparkError, pa.ArrowException, OSError, OverflowError)
"""What is left to Spark: it reads the piece nevertheless, or has an error of its own for it."""
_AS_PARTITIONS: Any = CPickleSerializer()
"""Spark sends the partitions of a Python source so."""


class Piece(Protocol):
    """A part of what an epoch reads of an input of a step, both by number, with about so many bytes."""

    @property
    def step(self) -> int: ...
    @property
    def input(self) -> int: ...
    @property
    def length(self) -> int: ...

    def split(self, tasks: int) -> Iterable[Self]:
        """The piece in smaller ones, for so many tasks."""
        ...


P_contra = TypeVar("P_contra", bound=Piece, contravariant=True)


class Scan(Protocol[P_contra]):
    """What is read of an input: these columns, and what a step reads of them."""

    @property
    def columns(self) -> pa.Schema: ...
    @property
    def work(self) -> ArrowWork: ...

    def read(self, pieces: Sequence[P_contra]) -> Iterator[pa.RecordBatch]:
        """The columns of the rows in the pieces. Raises `REFUSED`."""
        ...

    def check(self, piece: P_contra) -> None:
        """Raise `LeftToSparkError` for a piece that may mean something else to Spark, or that Arrow cannot read."""
        ...

    def nests(self, piece: P_contra, packed: PackedRows) -> bool:
        """Whether each share of the piece, split for the tasks of its step, has the rows of that task's keys."""
        ...


AnyScan = Scan[Any]
ScanInput = tuple[AnyScan, PackedRows]
"""An input that Arrow reads, and how its rows come to the tasks of its step."""
ScanOrder = Sequence[Sequence[Piece]]
"""The pieces of each task."""


def spread(inputs: Mapping[int, Sequence[ScanInput]], pieces: Sequence[Piece], slots: int) -> tuple[ScanOrder, bool]:
    """What each task reads, of so many that can run at once; and whether they are the tasks of the first step.

    They are where that step has no keys, or where each of its tasks can read the rows of its own. `inputs` are those of
    each step that reads sources.
    """
    [_, packed] = next(iter(inputs.values()))[0]
    own, alone = packed.assignment.tasks, inputs.keys() == {0}
    are_enough = own is not None and (own >= slots or sum(piece.length for piece in pieces) <= _ALONE_BYTES)
    if own is not None and are_enough and alone and pieces and all(_nests(inputs, each) for each in pieces):
        return [list(shares) for shares in zip(*(piece.split(own) for piece in pieces), strict=True)], True
    return _evenly(pieces, scan_tasks(pieces, slots)), alone and own is None


def _nests(inputs: Mapping[int, Sequence[ScanInput]], piece: Piece) -> bool:
    one, packed = inputs[piece.step][piece.input]
    return one.nests(piece, packed)


def scan_tasks(pieces: Sequence[Piece], slots: int) -> int:
    """How many tasks read the pieces: as many as can run at once, or a few times as many where they are large."""
    size = sum(piece.length for piece in pieces)
    return slots * max(1, -(-size // (slots * _TASK_BYTES)))


def _evenly(pieces: Iterable[Piece], tasks: int) -> ScanOrder:
    """The pieces, split, about as many bytes for each task."""
    found: list[list[Piece]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    split = [part for piece in pieces for part in piece.split(tasks)]
    for each in sorted(split, key=lambda each: -each.length):
        least = loads.index(min(loads))
        found[least].append(each)
        loads[least] += each.length
    return found


def encode_scan(order: ScanOrder) -> str:
    """The pieces as a property of a job."""
    return b85encode(zlib.compress(_AS_PARTITIONS.dumps(order), 1)).decode()


def decode_scan(text: str, partition: int) -> Sequence[Any]:
    """The pieces of one task."""
    order: Sequence[Sequence[Any]] = _AS_PARTITIONS.loads(zlib.decompress(b85decode(text)))
    return order[partition]


def scan_task(step: int, inputs: Sequence[ScanInput]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: the rows of pieces for the tasks of a step; `inputs` are those of its inputs.

    The rows that Spark passes only make the task run.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        pieces = decode_scan(context.getLocalProperty(SCAN_PROPERTY) or "", context.partitionId())
        try:
            for packed, table in _tables_read(step, inputs, pieces):
                yield from packed.batches(table)
        except REFUSED as error:
            yield from pack_refusal(error)
        deque(batches, maxlen=0)

    return work


def scan_in_place(step: int, inputs: Sequence[ScanInput]) -> Callable[[str, int], Iterator[pa.RecordBatch]]:
    """What `epoch_task` reads where the tasks of the step read its rows: nothing is shuffled.

    Raises `LeftToSparkError`, also where a row has come to another task than that of its key.
    """
    return lambda text, partition: scan(step, inputs, decode_scan(text, partition), partition)


def scan(step: int, inputs: Sequence[ScanInput], pieces: Sequence[Piece], task: int = 0) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces as this task of the step takes them. Raises `LeftToSparkError`."""
    try:
        for packed, table in _tables_read(step, inputs, pieces):
            yield from packed.rows_of_task(table, task).to_batches()
    except REFUSED as error:
        raise LeftToSparkError(str(error)) from error


def _tables_read(
    step: int, inputs: Sequence[ScanInput], pieces: Sequence[Piece]
) -> Iterator[tuple[PackedRows, pa.Table]]:
    """The rows of the pieces as they are read, those of an input after those of another."""
    for number, (one, packed) in enumerate(inputs):
        own = [each for each in pieces if (each.step, each.input) == (step, number)]
        for table in _tables(one.read(own)):
            yield packed, table


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches, so many at once that few tables are packed."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _TABLE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def check_pieces(inputs: Mapping[int, Sequence[ScanInput]], pieces: Iterable[Piece]) -> None:
    """Check each of the pieces by what is read of its input; `inputs` are those of each step that reads sources."""
    for piece in pieces:
        inputs[piece.step][piece.input][0].check(piece)
