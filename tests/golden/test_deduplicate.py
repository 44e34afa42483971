"""What Flink's tests expect of deduplication: one row an epoch, and each epoch is a restart."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.golden.cases import cases_of
from tests.unit.operators.keyed_streams import TIME, Row, Stream

SECOND = 1_000_000
DELAY_US = 5 * SECOND
SCHEMA = pa.schema([("order_id", pa.int64()), ("user", pa.string()), ("product", pa.string()), ("order_time", TIME)])
EXPIRE_AFTER_US = 10**12
CASES: list[tuple[str, dict[str, Any]]] = [
    ("deduplicate-asc ", {"keep": "first", "event_time": "order_time"}),
    ("deduplicate-asc ", {"keep": "first", "event_time": "order_time", "expire_after_us": EXPIRE_AFTER_US}),
    ("deduplicate-asc-proctime ", {"keep": "first"}),
    ("deduplicate-desc ", {"keep": "last", "event_time": "order_time"}),
    ("deduplicate-desc ", {"keep": "last", "event_time": "order_time", "expire_after_us": EXPIRE_AFTER_US}),
]
KINDS = {"insert": "+I", "update_postimage": "+U"}


@pytest.mark.parametrize(("name", "options"), CASES)
def test_rows_of_products(name: str, options: dict[str, Any]) -> None:
    file = cases_of("deduplicate.json")
    (case,) = (case for case in file["cases"] if case["name"].startswith(name))
    stream = Stream(Deduplicate.build(("product",), InputSpec((), SCHEMA), **options), DELAY_US)
    kinds = options["keep"] == "last"
    for part in ("before", "after"):
        out = [change for row in file["input"][part] for change in stream.epoch(batch(row))]
        assert [spelled(change, kinds=kinds) for change in out if change.get("_change_type") != "update_preimage"] == [
            tuple(row) for row in case[f"out_{part}"]
        ]


def test_all_rows_in_one_epoch_leave_the_same_table_where_nothing_is_forgotten() -> None:
    file = cases_of("deduplicate.json")
    rows = [row for part in ("before", "after") for row in file["input"][part]]
    for name, options in CASES:
        (case,) = (case for case in file["cases"] if case["name"].startswith(name))
        stream = Stream(Deduplicate.build(("product",), InputSpec((), SCHEMA), **options), DELAY_US)
        stream.epoch(*(batch(row) for row in reversed(rows)))
        left: dict[str, tuple[Any, ...]] = defaultdict(tuple)
        for row in [*case["out_before"], *case["out_after"]]:
            order = tuple(row[-4:])
            left[order[2]] = order
        assert sorted(spelled(row, kinds=False) for row in stream.table()) == sorted(left.values())


def batch(row: list[Any]) -> pa.Table:
    *others, seconds = row
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, [*others, seconds * SECOND], strict=True))], schema=SCHEMA)


def spelled(row: Row, *, kinds: bool) -> tuple[Any, ...]:
    values = (row["order_id"], row["user"], row["product"], row["order_time"] // SECOND)
    return (KINDS[row["_change_type"]], *values) if kinds else values
