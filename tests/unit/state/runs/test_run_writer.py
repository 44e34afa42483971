"""A merge of one run alone leaves it as it is: not read, not checked, perhaps not even brought from its store."""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.lsm.file.blocks import Damaged, Range
from dagster_ckpt.lsm.file.run_file import decode, encode
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.runs.run_writer import Folder, Level, RunWriter
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
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
    assert written.foreseen.bytes == run.load().nbytes
    assert written.ref().rows == len(RUN)
    assert far.asked_by == {threading.get_ident()}
    assert same(run, RUN)


def test_of_lists_only_those_elements_are_used_that_its_rows_have() -> None:
    """A piece of a far run has whole columns beneath it, and what was not brought of them is rubbish."""
    offsets = bytearray(pa.array(["a", "bb", "ccc"]).buffers()[1].to_pybytes()[:16])
    elements = pa.StringArray.from_buffers(3, pa.py_buffer(offsets), pa.py_buffer(b"abbccc"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), elements)
    for at in (0, 3):
        offsets[4 * at : 4 * at + 4] = b"\xa5" * 4
    schema = pa.schema([("k", pa.int64()), ("notes", pa.list_(pa.string()))])
    table = pa.table([pa.array([1, 2, 3])], schema=schema.remove(1)).append_column(schema.field(1), lists)
    run = Run(table.slice(1, 1), pa.array([7], pa.uint64()))
    encoded = encode(run)
    read = decode("some.arrow", encoded.data, encoded.checksum, schema)
    assert read.columns().to_pylist() == [{"k": 2, "notes": ["bb"]}]
