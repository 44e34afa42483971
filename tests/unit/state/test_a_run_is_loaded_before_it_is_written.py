"""A merge of one run alone leaves it as it is: not read, not checked, perhaps not even brought from its store."""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.lsm.blocks import Damaged, Range
from dagster_ckpt.lsm.run_file import decode, encode
from dagster_ckpt.protocol.manifest import HashRange, StateTableSpec
from dagster_ckpt.protocol.names import FileId
from dagster_ckpt.state.run_writer import Folder, Level, RunWriter
from dagster_ckpt.storage.memory import MemoryObjectStore
from tests.unit.state.epochs import engine
from tests.worlds.far_runs import SCHEMA, same, some_run

SPEC = StateTableSpec("groups", SCHEMA, ("k",))
RUN = some_run(20_000)
FILE = encode(RUN)


class Far:
    """Implements `blocks.Far`. There is only rubbish until bytes are asked for."""

    origin = "nowhere"

    def __init__(self) -> None:
        self.data = pa.allocate_buffer(FILE.data.size)
        self.asked_by: set[int] = set()
        self._here = np.frombuffer(self.data, dtype=np.uint8)
        self._here[:] = 0xA5

    def fetch(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        self.asked_by.add(threading.get_ident())
        for start, until in ranges:
            self._here[start:until] = np.frombuffer(FILE.data, dtype=np.uint8)[start:until]

    def renew(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        raise AssertionError(f"what was brought is whole. {ranges=}")


def test_its_size_is_known_and_no_other_thread_brings_its_bytes() -> None:
    far = Far()
    writer = RunWriter(MemoryObjectStore("loaded"), FileId(Term(1), Epoch(1), Shard(0), 1), engine())
    run = decode("some.arrow", far.data, FILE.checksum, SCHEMA, far)
    written = writer.write(run, Folder(SPEC, [Shard(0)], 1), HashRange(), Level.BOTTOM)
    assert written.foreseen.bytes == run.loaded().nbytes
    assert written.ref().rows == len(RUN)
    assert far.asked_by == {threading.get_ident()}
    assert same(run, RUN)
