"""What follows a stream over a rebuild gets the difference of its two tables, whatever identifies their rows."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.history.swap import swap
from dagster_ckpt.operators import Operator, RunningAggregate, agg
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.tables import net_changes
from dagster_ckpt.tables.share import Share
from tests.unit.history.made_streams import DEPARTURES, SHARDS, SOURCE, MadeStream, departures
from tests.worlds.streams import a_holder

NAME, BESIDE = "delays", "delays/~rebuild-1"
CHANGES = DEPARTURES.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))


def of_carriers(**aggregates: agg.Aggregation) -> Operator:
    return RunningAggregate.build(("carrier",), aggregates, InputSpec((SOURCE,), DEPARTURES))


def as_airlines(**aggregates: agg.Aggregation) -> Operator:
    return OperatorStep.of(of_carriers(**aggregates)).with_names(
        {"airline": "carrier", **{name: name for name in aggregates}}
    )


def of_all(**aggregates: agg.Aggregation) -> Operator:
    source = InputSpec((SOURCE,), DEPARTURES)
    return OperatorStep.of(one_group(source, lambda keys, spec: RunningAggregate.build(keys, aggregates, spec)))


def as_they_are(condition: str) -> Operator:
    """Rows that nothing identifies: each as often as it came."""
    return Materializer.build(("carrier",), InputSpec((SOURCE,), CHANGES), condition, counted=True)


def came(rows: dict[str | None, list[float]]) -> pa.Table:
    table = departures(rows)
    return table.append_column(CHANGES.field(CHANGE_TYPE), pa.array(["insert"] * table.num_rows, pa.string()))


class World:
    """A stream and another beside it, which has taken over."""

    def __init__(self, folder: Path, operators: tuple[Operator, Operator], batches: tuple[pa.Table, pa.Table]) -> None:
        self.url = folder.as_uri()
        for name, operator, rows in zip((NAME, BESIDE), operators, batches, strict=True):
            made = MadeStream(self.url, name, operator)
            made.commit(rows)
            made.close()
        root = open_store(self.url)
        owner, pipeline = Owner("instance-1", NAME), operators[1].pipeline
        opening = Opening(NAME, owner, pipeline, SHARDS, a_holder(), root_run="rebuild", take_over=Takeover.ALWAYS)
        self.before = self.history.latest().epoch
        swap(root, self.chain(NAME), self.chain(BESIDE), opening)

    @property
    def history(self) -> StreamHistory:
        return CheckpointStore(self.url).stream(NAME)

    def chain(self, name: str) -> ManifestChain:
        return ManifestChain(folder_store(open_store(self.url), folder_of(name.split("/"))), SystemClock())

    def follow(self, shares: int) -> Counter[str]:
        """The rows of one that had the table before the swap, and took what has changed since."""
        newest, shown = self.history.epochs_after(self.before)
        schema = newest.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string()))
        store = with_ancestors(self.chain(NAME).store, open_store(self.url), newest.ancestors)
        named = [with_names_of(each, newest) for each in shown]
        # A row may begin with other columns than it ends with: those that both have tell it apart here.
        common = set(newest.pipeline.output.names) & set(self.history.read(self.before).column_names)
        had = self.rows(self.history.read(self.before), common)
        for number in range(shares):
            for batch in net_changes(store, SystemClock(), named, schema, Share(number, shares)):
                for row in batch.to_pylist():
                    sign = -1 if row.pop(CHANGE_TYPE) in {"delete", "update_preimage"} else 1
                    had[self.row(row, common)] += sign
        return had

    def rows(self, table: pa.Table, names: set[str] | None = None) -> Counter[str]:
        return Counter(self.row(row, names or set(table.column_names)) for row in table.to_pylist())

    def row(self, row: dict[str, object], names: set[str]) -> str:
        return str([row[name] for name in sorted(names)])


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("make", [of_carriers, as_airlines], ids=["by key", "under other names"])
def test_rows_with_a_key(tmp_path: Path, make: Callable[..., Operator], shares: int) -> None:
    operators = (
        make(flights=agg.count(), most=agg.max("dep_delay")),
        make(flights=agg.count(), least=agg.min("dep_delay")),
    )
    batches = departures({"UA": [1.0, 5.0], "AA": [2.0]}), departures({"UA": [1.0, 5.0, 3.0], "DL": [4.0]})
    world = World(tmp_path, operators, batches)
    key = world.history.read().column_names[0]
    assert +world.follow(shares) == world.rows(world.history.read(), {key, "flights"})


@pytest.mark.parametrize("shares", [1, 3])
def test_rows_without_a_key_are_counted(tmp_path: Path, shares: int) -> None:
    operators = as_they_are("dep_delay < 9"), as_they_are("dep_delay < 99")
    batches = came({"UA": [1.0, 1.0], "DL": [2.0]}), came({"UA": [1.0], "AA": [7.0, 7.0, 7.0]})
    world = World(tmp_path, operators, batches)
    assert +world.follow(shares) == world.rows(world.history.read()) == {"['AA', 7.0]": 3, "['UA', 1.0]": 1}


@pytest.mark.parametrize("shares", [1, 3])
def test_a_table_of_one_row(tmp_path: Path, shares: int) -> None:
    operators = of_all(flights=agg.count()), of_all(flights=agg.count(), least=agg.min("dep_delay"))
    # All rows of a table without keys have the hash of a null.
    world = World(tmp_path, operators, (departures({None: [1.0]}), departures({None: [1.0, 2.0]})))
    assert +world.follow(shares) == {"[2]": 1}


def test_the_difference_is_shown_under_names_that_columns_have_got_since(tmp_path: Path) -> None:
    def of_delays(**names: str) -> Operator:
        both = of_carriers(least=agg.min("dep_delay"), most=agg.max("dep_delay"))
        return OperatorStep.of(both).with_names({"airline": "carrier", **names})

    rows = departures({"UA": [1.0, 5.0]})
    world = World(tmp_path, (as_airlines(flights=agg.count()), of_delays(a="least", b="most")), (rows, rows))
    for names in ({"c": "least", "b": "most"}, {"c": "least", "a": "most"}, {"b": "least", "a": "most"}):
        MadeStream(world.url, NAME, of_delays(**names)).close()
    log = world.history.changes(world.before).to_pylist()
    assert [(row["airline"], row["a"], row["b"], row[CHANGE_TYPE]) for row in log] == [
        ("UA", None, None, "update_preimage"),
        ("UA", 5.0, 1.0, "update_postimage"),
    ]
