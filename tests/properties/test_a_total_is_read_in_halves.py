"""Means whose column gets a wider type, against plain Python: some files have the total in one, others in halves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.hash_range import HASH_MAX
from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs, scan
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.run_file import decode, encode
from dagster_ckpt.lsm.lookup import find_rows, look_up
from dagster_ckpt.lsm.runs.deltas import read_before_images, with_before_images
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import GroupedState
from tests.worlds.examples import examples

KEYS = range(5)
MEAN: dict[str, Aggregation] = {"mean": agg.avg("v")}
BOTH = {**MEAN, "total": agg.sum("v")}
NARROW = st.none() | st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1])
WIDE = NARROW | st.sampled_from([-(2**63), -(2**32), 2**32, 2**63 - 1])
Values = dict[int, list[int | None]]
"""The values of each key."""


@dataclass(frozen=True)
class Epoch:
    """Its rows, whether they are kept with the rows before (which makes the file a change log), and what is merged."""

    values: Values
    logged: bool
    compacts: str | None


def epochs(value: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Epoch]]:
    values = st.dictionaries(st.sampled_from(KEYS), st.lists(value, min_size=1, max_size=4), min_size=1)
    each = st.builds(Epoch, values, st.booleans(), st.sampled_from([None, None, "upper", "down"]))
    return st.lists(each, max_size=4)


@dataclass
class Table:
    """The files of one state table, newest first, and the total of each key."""

    state: GroupedState
    upper: list[tuple[str, pa.Buffer]] = field(default_factory=list)
    bottom: list[tuple[str, pa.Buffer]] = field(default_factory=list)
    totals: dict[int, int] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("k", pa.int64()), *self.state.fields])

    def work(self, epoch: Epoch) -> None:
        """Merge the rows of an epoch into the state of their keys, write a file, then check what is read."""
        keys = sorted(epoch.values)
        lists = [epoch.values[key] for key in keys]
        rows = pa.table({"v": pa.array([value for each in lists for value in each], pa.int64())})
        starts = np.cumsum([0, *map(len, lists)])[:-1]
        new = self.state.of_rows(rows, np.arange(rows.num_rows), starts)
        found = self.look_up(keys)
        merged_state = self.state.merge_with(found, new)
        columns = [pa.array(keys, pa.int64()), *(merged_state[each.name] for each in self.state.fields)]
        run = build_run(hashes_of(keys), pa.Table.from_arrays(columns, schema=self.schema))
        if epoch.logged:
            run = with_before_images(run, found, ["k"])
            was = [self.totals[key] for key in keys if key in self.totals]
            assert self.totals_of(read_before_images(stored(run, self.schema), ["k"], self.schema).rows) == was
        self.totals |= {key: self.totals.get(key, 0) + sum(value or 0 for value in epoch.values[key]) for key in keys}
        self.upper.insert(0, file_of(run))
        self.compact(epoch.compacts)
        self.check()

    def compact(self, what: str | None) -> None:
        if what == "upper":
            self.upper = [file_of(merge_runs(self.runs(self.upper), ["k"]))]
        if what == "down":
            below = self.runs(self.bottom)
            news = merge_runs(self.runs(self.upper), ["k"])
            self.upper, self.bottom = [], [file_of(merge_into(below, news, ["k"]) if below else news)]

    def check(self) -> None:
        found = self.look_up(list(KEYS))
        assert found.present.tolist() == [key in self.totals for key in KEYS]
        assert self.totals_of(found.rows) == [self.totals[key] for key in KEYS if key in self.totals]
        whole = scan(*self.views(), 0, HASH_MAX, ["k"])
        if whole is not None:
            assert self.totals_of(whole.columns()) == [self.totals[key] for key in sorted(self.totals)]

    def look_up(self, keys: Sequence[int]) -> Found:
        asked = pa.table({"k": pa.array(keys, pa.int64())})
        return find_rows(look_up(*self.views(), hashes_of(keys), asked, self.schema).parts, asked, self.schema)

    def views(self) -> tuple[list[View], list[View]]:
        upper, bottom = ([View(run) for run in self.runs(files)] for files in (self.upper, self.bottom))
        return upper, bottom

    def runs(self, files: Sequence[tuple[str, pa.Buffer]]) -> list[Run]:
        return [decode("run", data, checksum, self.schema) for checksum, data in files]

    def totals_of(self, rows: pa.Table) -> list[int]:
        """The totals in these rows of the state; where it has them in both forms they must be the same."""
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
        forms = [columns["_sum(v)"]] if "_sum(v)" in columns else []
        if "_sum_high(v)" in columns:
            halves = zip(columns["_sum_high(v)"], columns["_sum_low(v)"], strict=True)
            forms.append([(high << 32) + low for high, low in halves])
        assert all(form == forms[0] for form in forms)
        totals: list[int] = forms[0]
        return totals


def hashes_of(keys: Sequence[int]) -> np.ndarray:
    return np.array(keys, dtype=np.uint64) << np.uint64(60)


def file_of(run: Run) -> tuple[str, pa.Buffer]:
    file = encode(run)
    return file.checksum, file.data


def stored(run: Run, schema: pa.Schema) -> Run:
    checksum, data = file_of(run)
    return decode("run", data, checksum, schema)


def state_of(aggregates: dict[str, Aggregation], type_: pa.DataType) -> GroupedState:
    return GroupedState.of(aggregates, pa.schema([("v", type_)]), None)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_file, "BLOCK_BYTES", 64)
        yield


@given(epochs(NARROW), epochs(WIDE))
@examples(50)
def test_the_mean_of_a_column_that_gets_wider_is_of_all_rows(narrow: list[Epoch], wide: list[Epoch]) -> None:
    table = Table(state_of(MEAN, pa.int32()))
    for epoch in narrow:
        table.work(epoch)
    table.state = state_of(MEAN, pa.int64())
    table.check()
    for epoch in wide:
        table.work(epoch)


@given(st.lists(st.tuples(st.sampled_from([BOTH, {"total": agg.sum("v")}]), epochs(NARROW)), max_size=4))
@examples(40)
def test_a_mean_that_comes_and_goes_beside_a_total_counts_nothing_twice(
    lives: list[tuple[dict[str, Aggregation], list[Epoch]]],
) -> None:
    table = Table(state_of(BOTH, pa.int32()))
    for aggregates, its_epochs in lives:
        table.state = state_of(aggregates, pa.int64())
        table.check()
        for epoch in its_epochs:
            table.work(epoch)


@given(epochs(NARROW), epochs(WIDE))
@examples(25)
def test_a_change_log_tells_the_rows_before_in_the_columns_of_a_later_table(
    narrow: list[Epoch], wide: list[Epoch]
) -> None:
    table = Table(state_of(MEAN, pa.int32()))
    later = Table(state_of(MEAN, pa.int64()))
    for epoch in narrow:
        was = dict(table.totals)
        table.work(replace(epoch, logged=True, compacts=None))
        [log, *_] = later.runs(table.upper)
        images = read_before_images(log, ["k"], later.schema)
        assert later.totals_of(images.rows) == [was[key] for key in sorted(epoch.values) if key in was]
        assert later.totals_of(log.columns()) == [table.totals[key] for key in sorted(epoch.values)]
        middle = log.slice(0, len(log) // 2)
        assert later.totals_of(middle.columns()) == later.totals_of(log.columns())[: len(middle)]
    table.state = later.state
    for epoch in wide:
        table.work(replace(epoch, logged=True))
