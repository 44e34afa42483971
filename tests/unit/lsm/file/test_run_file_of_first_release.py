from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.file.run_file import decode
from dagster_ckpt.lsm.runs.run import ABSENT, Run
from tests.unit.lsm.finding import positions

SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("d", pa.decimal128(20, 2)), ("at", pa.timestamp("us", "UTC"))]
)
FILE = Path(__file__).parent / "run-of-0.1.0.arrow"
N = 300


def run_of_the_first_release() -> Run:
    """300 keys, spread evenly; each tenth is a tombstone."""
    return decode("run", pa.py_buffer(FILE.read_bytes()), "729:b3cee0c4", SCHEMA)


def test_each_row_is_what_was_written() -> None:
    run = run_of_the_first_release()
    numbers = np.arange(N, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(numbers)
    assert run.hashes.tolist() == numbers[order].tolist()
    assert run.tombstones is not None
    assert run.tombstones.tolist() == [i % 10 == 3 for i in order]
    expected = pa.Table.from_pylist(
        [
            {
                "k": None if i == 7 else f"key {i}",
                "n": None if i % 10 == 3 else i * i,
                "d": None if i % 10 == 3 or i % 5 == 0 else Decimal(i).scaleb(-2),
                "at": None if i % 10 == 3 or i % 7 == 0 else i,
            }
            for i in order.tolist()
        ],
        schema=SCHEMA,
    )
    assert run.columns().equals(expected)
    assert run.before is None


def test_each_key_is_found() -> None:
    run = run_of_the_first_release()
    keys = pa.table({"k": [*run.columns()["k"].to_pylist(), "another"]})
    hashes = np.append(run.hashes, run.hashes[-1])
    assert positions(run, hashes, keys).tolist() == [*range(N), ABSENT]
