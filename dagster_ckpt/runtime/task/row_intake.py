"""A task's input rows: in chunks of bounded size, counted, with the wait for them measured."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import flat, flatten
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.shared.arrays.nulls import without_values
from dagster_ckpt.operators.shared.event_time_range import newest_us
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, columns_of_input

NULL_ROWS = "null_rows"
"""The counter of rows of sources that have nothing but nulls, as Spark makes them of malformed records."""

_SHOWN_BYTES = 20
"""How much of a text an error shows, before and after the first byte that is wrong."""


def cut_chunks(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
    """The batches' rows, in order, as tables of at most `bytes_max`, or of one row; none is empty.

    Besides the chunk, at most one batch is held.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        for piece in _pieces(batch, bytes_max):
            if held and held_bytes + piece.nbytes > bytes_max:
                chunk = pa.Table.from_batches(held)
                held, held_bytes = [], 0
                yield chunk
            held.append(piece)
            held_bytes += piece.nbytes
    if held:
        yield pa.Table.from_batches(held)


def _pieces(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The batch, or slices of it if it is too large, even if only a few of its rows are large."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or batch.nbytes <= bytes_max:
        yield batch
        return
    pieces = -(-batch.nbytes // bytes_max)
    rows = min(-(-batch.num_rows // pieces), batch.num_rows - 1)
    for start in range(0, batch.num_rows, rows):
        yield from _pieces(batch.slice(start, rows), bytes_max)


class Intake:
    """What a task has read so far. `event_times` names each input's event-time column, None where it has none.

    Create it when the task starts: `busy_ms` is the time since then, without the time spent waiting for rows.
    """

    def __init__(self, event_times: tuple[str | None, ...], clock: Clock) -> None:
        self._columns = event_times
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._waited_ms = 0
        self.rows = 0
        self.null_rows = 0
        self._greatest_us: list[int | None] = [None for _ in event_times]

    @property
    def busy_ms(self) -> int:
        """How long the task has worked."""
        return self._clock.monotonic_ms() - self._began_ms - self._waited_ms

    @property
    def event_times_us(self) -> tuple[int | None, ...]:
        """The greatest event time in range of each input."""
        return tuple(self._greatest_us)

    def chunks(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The chunks, counted as they pass."""
        coming = iter(chunks)
        while True:
            asked_ms = self._clock.monotonic_ms()
            chunk = next(coming, None)
            self._waited_ms += self._clock.monotonic_ms() - asked_ms
            if chunk is None:
                return
            self.rows += chunk.num_rows
            yield chunk

    @property
    def counters(self) -> tuple[tuple[str, int], ...]:
        """What is counted of rows besides how many there are; nothing where that is 0."""
        return ((NULL_ROWS, self.null_rows),) if self.null_rows else ()

    def see(self, number: int, rows: pa.Table) -> None:
        """Check rows of one input, which a source has given, and record their event times.

        Raises `InvalidPipelineError` for text that is not valid UTF-8.
        """
        check_text(rows)
        self.null_rows += int(np.count_nonzero(without_values(rows, rows.num_rows)))
        column = self._columns[number]
        if column is None:
            return
        known = [us for us in (self._greatest_us[number], newest_us(rows.column(column))) if us is not None]
        self._greatest_us[number] = max(known, default=None)


def check_text(rows: pa.Table) -> None:
    """Raise `InvalidPipelineError` for text that is not valid UTF-8: no reader of the table takes it.

    A cast of bytes to a string checks nothing in Spark. ASCII costs one pass over the bytes: 3 ms for 32 MB.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for array in column.chunks:
            if _may_be_invalid(array):
                try:
                    array.validate(full=True)
                except pa.ArrowInvalid as error:
                    raise InvalidPipelineError(
                        "text is not valid UTF-8: decode the bytes as what they are, such as decode(value, "
                        "'ISO-8859-1'), or replace what is invalid with make_valid_utf8 before it comes here. "
                        f"column={name}, value={_first_invalid(array)}"
                    ) from error


def _may_be_invalid(array: pa.Array) -> bool:
    """Whether the array has text with other characters than those of ASCII."""
    kinds, type_ = pa.types, array.type
    if kinds.is_string(type_) or kinds.is_large_string(type_):
        data = array.buffers()[2]
        return bool(data is not None and data.size and np.frombuffer(data, np.int8).min() < 0)
    if kinds.is_struct(type_):
        return any(map(_may_be_invalid, array.flatten()))
    return bool(kinds.is_nested(type_))


def _first_invalid(array: pa.Array) -> str:
    """The beginning of the first text that is not valid, in bytes; of a nested column it is not looked for."""
    if pa.types.is_nested(array.type):
        return "within a nested value"
    for value in array.cast(pa.large_binary()).to_pylist():
        try:
            (value or b"").decode()
        except UnicodeDecodeError as error:
            return repr(value[max(0, error.start - _SHOWN_BYTES) : error.start + _SHOWN_BYTES])
    return "unknown"


def rows_by_input(chunk: pa.Table, schemas: Sequence[pa.Schema]) -> Iterator[tuple[int, Hashes, pa.Table]]:
    """The rows of each input that has any in the chunk, with their hashes: flat tables of these schemas."""
    hashes = flat(chunk.column(HASH)).to_numpy().view(np.uint64)
    if len(schemas) == 1:
        yield 0, hashes, flatten(chunk.select(schemas[0].names).cast(schemas[0]))
        return
    inputs = flat(chunk.column(INPUT)).to_numpy()
    for number in np.unique(inputs).tolist():
        mine = np.flatnonzero(inputs == number)
        columns = flat(chunk.column(columns_of_input(number))).take(pa.array(mine)).flatten()
        rows = pa.Table.from_arrays(columns, names=schemas[number].names)
        yield number, np.take(hashes, mine), flatten(rows.cast(schemas[number]))
