"""Every function of the registry, wherever its state may be, against the same of the rows that are there."""

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.aggregates import spec
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties import steps_in_python
from tests.properties.aggregates_in_python import ORACLES, digests
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.unit.operators.changing_streams import Changing
from tests.unit.operators.keyed_streams import Row
from tests.worlds.examples import examples
from tests.worlds.sample_aggregates import samples

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("us")),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "b", None]),
        "i": st.sampled_from([0, 1, 1, 6, -3, 40, None]),
        "f": st.sampled_from([0.5, 0.25, -1.25, 0.0, 3.0, None]),
        "s": st.sampled_from(["", "x", "é", None]),
        "b": st.sampled_from([True, False, None]),
        "at": st.just(steps_in_python.EPOCH),
    }
)
OF_WHOLE = {spec.NUMBERS: "i", spec.INTEGERS: "i", spec.BOOLEANS: "b", spec.ORDERED: "s", spec.COMPARABLE: "s"}
OF_FLOATS = {**OF_WHOLE, spec.NUMBERS: "f", spec.ORDERED: "f", spec.COMPARABLE: "f", spec.ANYTHING: "f"}
SAMPLES: dict[str, Aggregation] = {
    f"{name}_{number}": one
    for number, columns in enumerate(({**OF_WHOLE, spec.ANYTHING: "s"}, OF_FLOATS))
    for name, one in samples(columns, code=digests, by="i", other="f").items()
    if name in ORACLES
}
IN_THE_ROW = {name: one for name, one in SAMPLES.items() if FUNCTIONS[one.function].is_of_column}
History = list[list[tuple[str, int, Row]]]


def test_there_is_an_oracle_of_every_function_that_is_exact() -> None:
    assert ORACLES.keys() == {name for name, spec in FUNCTIONS.items() if not spec.needs_sketches}


def agree(found: list[Row], rows: list[Row], aggregates: dict[str, Aggregation]) -> None:
    wanted = {row["k"]: row for row in steps_in_python.aggregate(rows, ["k"], aggregates)}
    table = {row["k"]: row for row in found}
    assert table.keys() == wanted.keys()
    for key, row in table.items():
        for name in aggregates:
            value = wanted[key][name]
            if isinstance(value, float):
                assert row[name] == pytest.approx(value, rel=1e-12, abs=1e-9, nan_ok=True), (key, name)
            else:
                assert repr(row[name]) == repr(value), (key, name)


@examples(12, 2)
@given(histories(ROWS), st.booleans(), SIZES, RANDOMS)
def test_of_rows_that_come_or_come_and_go(history: History, appends: bool, size: int, random: Random) -> None:
    schema = SCHEMA if appends else SCHEMA.append(KIND)
    operator = RunningAggregate.build(("k",), SAMPLES, InputSpec((), schema), updating=not appends)
    stream = Changing(operator, rebuilds=False)  # without the code of the user-defined one
    bag = Bag(SCHEMA)
    for steps in history:
        given_ = [("insert", at, row) for _, at, row in steps] if appends else steps
        stream.epoch(*((0, batch.select(schema.names)) for batch in bag.epoch(given_, size, random)))
        agree(stream.table(), bag.rows, SAMPLES)


@examples(12, 2)
@given(histories(ROWS), SIZES, RANDOMS)
def test_where_the_row_of_a_window_has_all_state(history: History, size: int, random: Random) -> None:
    stream = Changing(WindowAggregate.build(("k",), IN_THE_ROW, InputSpec((), SCHEMA), "at", Tumbling(10), early=True))
    bag = Bag(SCHEMA)
    for steps in history:
        added = [("insert", at, row) for _, at, row in steps]
        stream.epoch(*((0, batch.select(SCHEMA.names)) for batch in bag.epoch(added, size, random)))
        agree(stream.table(), bag.rows, IN_THE_ROW)
