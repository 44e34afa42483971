"""Run files on their way to the store: encoded and written by the I/O pool, readable at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.file.run_file import FileLayout, decode, encode
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.protocol.manifest.manifest import RunRef, StateTableSpec, TimeRange
from dagster_ckpt.protocol.object_names import FileId, state_name
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.io_pool import Job
from dagster_ckpt.state.memory_budget import Reservation
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.stores.object_store import ObjectStore


class Level(IntEnum):
    """How far compaction has moved the rows of a run."""

    FRESH = 0
    """Nothing yet."""
    MERGED = 1
    """They were merged with those of other upper runs."""
    BOTTOM = 2
    """They were moved down: nothing is older."""


class WrittenRun:
    """A run that is being written, or has been. In memory until that has ended, then on the store."""

    job: Job[RunRef]

    def __init__(self, run: Run, foreseen: RunRef) -> None:
        """`foreseen` is the reference to come; its `bytes` and `checksum` are not known yet."""
        self.foreseen = foreseen
        self._run: Run | None = run

    @property
    def path(self) -> str:
        """The file's name."""
        return self.foreseen.path

    @property
    def in_memory(self) -> Run | None:
        """The run while it is not durable; None from then on."""
        return self._run

    def ref(self) -> RunRef:
        """The reference to the file, once that is durable. Raises what went wrong with it."""
        return self.job.result()

    def rows(self) -> Run:
        """The run, which must still be in memory."""
        assert self._run is not None, "the run was released"
        return self._run

    def is_encoded(self, run: Run) -> None:
        """Hold the rows in their file's bytes from now on, and no longer beside those."""
        self._run = run

    def release(self) -> None:
        """Hold them no longer."""
        self._run = None


@dataclass(frozen=True)
class Folder:
    """Names the folder of runs: one table, and these adjacent shards of `of` in all."""

    spec: StateTableSpec
    shards: Sequence[Shard]
    of: int


class RunWriter:
    """Writes the runs of one task in one epoch; names them by the task's `FileId`, with ascending numbers.

    A crash leaves files that no manifest names.
    """

    def __init__(self, store: ObjectStore, file: FileId, engine: Engine) -> None:
        self._store = store
        self._files = (replace(file, number=number) for number in count(file.number))
        self._engine = engine
        self._written: list[WrittenRun] = []

    def write(self, run: Run, folder: Folder, clip: HashRange, level: Level) -> WrittenRun:
        """Queue a run of at least one row to be written. Waits where too much is on its way already.

        `clip` are the hashes for which it is written.
        """
        file = next(self._files)
        # A merge may return a run of a file: unchecked offsets give no size, and other threads must not read from it.
        run = run.load()
        foreseen = RunRef(
            path=state_name(folder.spec.name, folder.shards, folder.of, file),
            rows=len(run),
            bytes=run.nbytes,
            checksum="",
            epoch=file.epoch,
            level=int(level),
            tombstones=0 if run.tombstones is None else int(run.tombstones.sum()),
            hashes=HashRange(int(run.hashes[0]), int(run.hashes[-1])),
            clip=clip,
            times=_time_range(run, folder.spec),
        )
        written = WrittenRun(run, foreseen)
        io = self._engine.io
        # Twice, since while it is encoded its rows and its file are both held.
        reservation = self._engine.budget.begin_write(written.path, 2 * run.nbytes, io.timeout_ms)

        def job() -> RunRef:
            try:
                return self._create(written, folder.spec, reservation)
            finally:
                written.release()
                reservation.give_back()

        try:
            written.job = io.submit(f"writing {written.path}", job)
        except BaseException:
            reservation.give_back()
            raise
        self._written.append(written)
        return written

    def wait(self) -> None:
        """Return once everything is durable; raises what went wrong with the first file that failed."""
        for written in self._written:
            written.ref()

    def delete_later(self, ref: RunRef) -> None:
        """Delete a file of this epoch that no manifest will name. It may fail without harm.

        Where the pool is busy the file stays, as it does after a crash: an ACK waits for no deletion.
        """
        # The disk gets its room back only once the file is unmapped.
        self._engine.runs.forget(self._store, ref)
        self._engine.io.submit_if_idle(f"deleting {ref.path}", lambda: self._store.delete(ref.path))

    def _create(self, written: WrittenRun, spec: StateTableSpec, reservation: Reservation) -> RunRef:
        # The bottom is searched last, for keys that are mostly there: a Bloom filter pays only for a remote store.
        bloom = written.foreseen.level != Level.BOTTOM or self._store.local_path(written.path) is None
        encoded = encode(written.rows(), FileLayout(spec.sort, spec.time, bloom))
        written.is_encoded(decode(written.path, encoded.data, encoded.checksum, spec.schema))
        reservation.shrink_to(encoded.data.size)
        create(self._store, written.path, memoryview(encoded.data))
        self._engine.runs.keep(self._store, written.path, encoded.checksum, encoded.data)
        return replace(written.foreseen, bytes=encoded.data.size, checksum=encoded.checksum)


def _time_range(run: Run, spec: StateTableSpec) -> TimeRange | None:
    """The least and greatest time in a run; None where no row has one."""
    if spec.time is None:
        return None
    bounds = pc.min_max(run.columns([spec.time]).column(0).chunk(0).cast(pa.int64()))
    if not bounds["min"].is_valid:  # tombstones of a logged table, whose rows never expire
        return None
    return TimeRange(bounds["min"].as_py(), bounds["max"].as_py())
