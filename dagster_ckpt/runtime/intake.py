"""A task's rows on their way in: in chunks of one size, counted, the wait for them measured."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.clock import Clock


def chunks_of(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
    """The batches' rows in their order as tables of at most `bytes_max`, or of one row; none is empty.

    Beside the chunk, at most one batch is held.
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
    """The batch, or slices of it where it is too large: also where few of its rows are what makes it so."""
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
    """What a task has taken in so far. `event_time` is the column with the rows' event time, None where none has one.

    Begins with the task's work: `busy_ms` is all the time since, but for what was spent waiting for rows.
    """

    def __init__(self, event_time: str | None, clock: Clock) -> None:
        self._event_time = event_time
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._waited_ms = 0
        self.rows = 0
        self.event_time_us: int | None = None

    @property
    def busy_ms(self) -> int:
        """How long the task has worked."""
        return self._clock.monotonic_ms() - self._began_ms - self._waited_ms

    def chunks(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The chunks, looked at as they pass."""
        coming = iter(chunks)
        while True:
            asked_ms = self._clock.monotonic_ms()
            chunk = next(coming, None)
            self._waited_ms += self._clock.monotonic_ms() - asked_ms
            if chunk is None:
                return
            self.rows += chunk.num_rows
            self._see_times(chunk)
            yield chunk

    def _see_times(self, chunk: pa.Table) -> None:
        if self._event_time is None:
            return
        newest = pc.max(chunk.column(self._event_time))
        if newest.is_valid:
            newest_us = int(newest.cast(pa.int64()).as_py())
            self.event_time_us = newest_us if self.event_time_us is None else max(self.event_time_us, newest_us)
