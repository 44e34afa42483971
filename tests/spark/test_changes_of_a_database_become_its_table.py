"""`changes_from` in each of its formats: the table equals the one at the source, whatever happens between."""

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg, changes_from
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.operators.rows.changes_from import (
    KIND,
    NO_ROW,
    OUTDATED,
    PUT,
    REPEATED,
    TRUNCATE,
    UNORDERED,
    UNREADABLE,
)
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from tests.spark.input_files import drop
from tests.spark.streams import FAST, Function, StreamUnderTest

ONCE = replace(FAST, tolerable_failures=0)
Row = dict[str, Any]
RECORDS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
PERSON = "struct<id: long, name: string, note: string>"
ENVELOPE = (
    f"before {PERSON}, after {PERSON}, op string, "
    "source struct<connector: string, lsn: long, snapshot: string, ts_ms: long>"
)
CUSTOMERS = "id long, name string"


class Crash(BaseException):
    """Stands for the death of the process."""


def event(op: str, lsn: int | None, before: Row | None = None, after: Row | None = None, **source: Any) -> Row:
    snapshot = "true" if op == "r" else "false"
    where = {"connector": "postgresql", "lsn": lsn, "snapshot": snapshot, "ts_ms": 1000 * (lsn or 0), **source}
    return {"before": before, "after": after, "op": op, "source": where, "ts_ms": 1}


def customer(id_: int, name: str) -> Row:
    return {"id": id_, "name": name}


@dataclass
class Source:
    """A folder of change events in the order of its files."""

    inbox: Path
    files: int = 0
    offset: int = 0

    def records(self, *values: Row | str | None, enveloped: bool = False) -> None:
        """Records as Kafka's source gives them, a file of them."""
        texts = [
            each if isinstance(each, str) or each is None else json.dumps(around(each, enveloped)) for each in values
        ]
        columns = {
            "key": pa.array([b"k"] * len(texts)),
            "value": pa.array([None if text is None else text.encode() for text in texts], pa.binary()),
            "topic": ["shop.customers"] * len(texts),
            "partition": pa.array([0] * len(texts), pa.int32()),
            "offset": pa.array(range(self.offset, self.offset + len(texts)), pa.int64()),
            "timestamp": pa.array([0] * len(texts), pa.timestamp("us", "UTC")),
        }
        self.offset += len(texts)
        self.rows(pa.table(columns))

    def rows(self, table: pa.Table) -> None:
        drop(self.inbox, self.files, table)
        self.files += 1

    def read(self, spark: SparkSession, schema: str) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(self.inbox))

    def debezium(self, **options: Any) -> Function:
        wanted: Any = {"schema": CUSTOMERS, "key": "id", **options}
        return lambda spark: changes_from(self.read(spark, RECORDS), "debezium", **wanted)

    def parsed(self, **options: Any) -> Function:
        wanted: Any = {"key": "id", **options}
        return lambda spark: changes_from(self.read(spark, ENVELOPE), "debezium", **wanted)


def around(event: Row, enveloped: bool) -> Row:
    return {"schema": {"type": "struct", "optional": False}, "payload": event} if enveloped else event


@pytest.fixture
def stream(spark_of_all: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark_of_all, tmp_path, shards=2)


@pytest.fixture
def source(inbox: Path) -> Source:
    return Source(inbox)


def names(stream: StreamUnderTest, epoch: int | None = None) -> dict[object, object]:
    return {row["id"]: row["name"] for row in stream.rows(epoch)}


def test_a_snapshot_then_changes_of_debezium_as_json(stream: StreamUnderTest, source: Source) -> None:
    snapshot = [event("r", 100, None, customer(n, name)) for n, name in enumerate(["Ada", "Bo", "Cyd"])]
    source.records(*snapshot, event("u", 95, customer(0, "Ada"), customer(0, "Ada L.")))
    later = [
        event("c", 110, None, {**customer(3, "Di"), "not_in_the_schema": 1}),
        event("d", 120, customer(1, "Bo")),
        None,  # Kafka's tombstone behind each delete
        event("u", 140, customer(2, "Cyd"), customer(20, "Cyd")),  # another key, in one event
        event("u", 150, None, customer(3, "Dia")),
    ]
    source.records(*later)
    # Out of order, and the connector sends all again, now with the schema of each event.
    again = [event("u", 105, None, customer(1, "Bob")), *snapshot, *later, event("c", 160, None, customer(4, "Eve"))]
    source.records(*again, enveloped=True)
    # The update at 95 was not in the snapshot at 100: its transaction was open then.
    stream.run(source.debezium(), ONCE)
    assert names(stream) == {0: "Ada L.", 20: "Cyd", 3: "Dia", 4: "Eve"}
    assert [epoch.counters[OUTDATED] for epoch in stream.epochs] == [0, 0, 5]
    assert stream.epochs[2].manifest.statistics.rows_out == 1
    changes = stream.history().changes(after=stream.epochs[0].manifest.epoch).to_pylist()
    assert sorted((row["_change_type"], row["id"]) for row in changes) == [
        *(("delete", 1), ("delete", 2), ("insert", 3), ("insert", 4), ("insert", 20))
    ]


def test_parsed_events_with_a_sequence_of_the_users_and_without_a_column(
    stream: StreamUnderTest, source: Source
) -> None:
    person = pa.struct([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    where = [("connector", pa.string()), ("lsn", pa.int64()), ("snapshot", pa.string()), ("ts_ms", pa.int64())]
    schema = pa.schema([("before", person), ("after", person), ("op", pa.string()), ("source", pa.struct(where))])

    def send(*events: Row) -> None:
        source.rows(pa.Table.from_pylist(list(events), schema=schema))

    send(event("c", 9, None, customer(1, "Ada"), ts_ms=1), event("c", 8, None, customer(2, "Bo"), ts_ms=2))
    send(event("u", 1, None, customer(1, "Ida"), ts_ms=3), event("d", 99, customer(2, "Bo"), ts_ms=1))
    stream.run(source.parsed(sequence="source.ts_ms", exclude="note"), ONCE)
    assert stream.rows() == [customer(1, "Ida"), customer(2, "Bo")]


FEED = pa.schema(
    [
        *(("id", pa.int64()), ("name", pa.string()), ("_change_type", pa.string()), ("_commit_version", pa.int64())),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)


def feed(version: int, *rows: tuple[str, int, str]) -> pa.Table:
    """A commit as Delta's change data feed has it."""
    kinds, ids, named = zip(*rows, strict=True)
    versions, times = [version] * len(rows), [version * 1_000_000] * len(rows)
    columns = zip((ids, named, kinds, versions, times), FEED.types, strict=True)
    return pa.Table.from_arrays([pa.array(each, type_) for each, type_ in columns], schema=FEED)


def deltas(source: Source, **options: Any) -> Function:
    schema = "id long, name string, _change_type string, _commit_version long, _commit_timestamp timestamp"
    return lambda spark: changes_from(source.read(spark, schema), "delta-cdf", key="id", **options)


def test_the_change_data_feed_of_delta(stream: StreamUnderTest, source: Source) -> None:
    commits = [
        feed(1, ("insert", 1, "Ada"), ("insert", 2, "Bo"), ("insert", 3, "Cyd")),
        # An update, another key for a row, and a row that is deleted and inserted in one commit.
        feed(
            2,
            *(("update_preimage", 1, "Ada"), ("update_postimage", 1, "Ida")),
            *(("update_postimage", 20, "Bo"), ("update_preimage", 2, "Bo")),
            *(("insert", 3, "Cy"), ("delete", 3, "Cyd")),
        ),
        pa.concat_tables(
            [feed(4, ("delete", 1, "Ida")), feed(3, ("update_preimage", 1, "Ida"), ("update_postimage", 1, "Ira"))]
        ),
    ]
    for commit in (*commits, commits[1]):
        source.rows(commit)
    stream.run(deltas(source), ONCE)
    assert names(stream) == {20: "Bo", 3: "Cy"}
    assert names(stream, stream.epochs[1].manifest.epoch) == {1: "Ida", 20: "Bo", 3: "Cy"}
    assert stream.epochs[-1].manifest.statistics.rows_out == 0


def test_tombstones_of_delta_expire_by_the_time_of_the_commit(stream: StreamUnderTest, source: Source) -> None:
    first = feed(1, ("insert", 1, "Ada"), ("insert", 2, "Bo"))
    source.rows(pa.concat_tables([first, feed(5, ("delete", 1, "Ada"))]))
    source.rows(feed(30, ("insert", 3, "Cyd")))
    source.rows(feed(2, ("update_postimage", 1, "Ida"), ("update_postimage", 2, "Bob")))
    stream.run(deltas(source, deletes_expire_after="10s"), ONCE)
    assert names(stream) == {2: "Bob", 3: "Cyd"}
    assert [epoch.manifest.statistics.late_rows for epoch in stream.epochs] == [0, 0, 1]


def test_a_column_with_the_operation(stream: StreamUnderTest, source: Source) -> None:
    def rows(*changes: tuple[str, int, str | None, int]) -> None:
        ops, ids, named, versions = zip(*changes, strict=True)
        source.rows(pa.table({"Op": ops, "id": ids, "name": pa.array(named, pa.string()), "v": versions}))

    def function(spark: SparkSession) -> Stream:
        frame = source.read(spark, "Op string, id long, name string, v long")
        return changes_from(frame, "op-column", op="Op", key="id", sequence="v")

    rows(("I", 1, "Ada", 1), ("I", 2, "Bo", 2), ("U", 1, "Ida", 4), ("u", 1, "Ira", 3))
    rows(("D", 2, None, 5), ("insert", 3, None, 6), ("I", 2, "Bo", 2))
    stream.run(function, ONCE)
    assert stream.rows() == [{"id": 1, "name": "Ida", "v": 4}, {"id": 3, "name": None, "v": 6}]
    assert stream.epochs[1].counters == {OUTDATED: 0, REPEATED: 1}


def test_crashes_after_each_epoch_and_a_rollback_which_takes_tombstones_back_too(
    stream: StreamUnderTest, source: Source
) -> None:
    source.records(event("r", 1, None, customer(1, "Ada")), event("r", 1, None, customer(2, "Bo")))
    source.records(event("d", 3, customer(1, "Ada")), event("u", 4, None, customer(2, "Bob")))
    source.records(event("u", 2, None, customer(1, "Ida")), event("c", 5, None, customer(3, "Cyd")))

    function = source.debezium(deletes_expire_after="1 day")

    def die(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        raise Crash

    tables = [{1: "Ada", 2: "Bo"}, {2: "Bob"}, {2: "Bob", 3: "Cyd"}]
    for table in tables:
        with pytest.raises(Crash):
            stream.run(function, hooks=JobHooks(on_commit=die))
        assert names(stream) == table
    assert [names(stream, epoch.manifest.epoch) for epoch in stream.epochs] == tables
    (source.inbox / "00001.parquet").rename(source.inbox / "_away")
    stream.run(function, from_epoch=0)
    assert names(stream) == {1: "Ida", 2: "Bo", 3: "Cyd"}, "without the delete the update counts"
    assert len(stream.epochs) == 5
    assert stream.history().get({"id": [1, 4]}).to_pylist() == [customer(1, "Ida")]


@dataclass
class Model:
    """A table that changes at random, and the log of its changes."""

    chance: random.Random
    table: dict[int, Row] = field(default_factory=dict)
    lsn: int = 0

    def change(self) -> Row:
        self.lsn += 1
        id_ = self.chance.randrange(20)
        before, after = self.table.pop(id_, None), {"id": id_, "name": f"n{self.chance.randrange(3)}"}
        if before is not None and self.chance.random() < 0.3:
            return event("d", self.lsn, before)
        self.table[id_] = after
        return event("u" if before else "c", self.lsn, before, after)


@pytest.mark.reads_streams
def test_a_stream_with_sums_follows_the_table(spark_of_all: SparkSession, tmp_path: Path, source: Source) -> None:
    up, down = (StreamUnderTest(spark_of_all, tmp_path, name, shards=2) for name in ("up", "down"))

    def sums(spark: SparkSession) -> Stream:
        reads = Downstream(down.address, folder_of((down.name,)), 100, 2, 1_000_000)
        table = read_table(spark, reads, newest_manifest(reads, ("up",), SystemClock()))
        return table.where("name <> 'n2'").key_by("name").aggregate(rows=agg.count(), ids=agg.sum("id"))

    model = Model(random.Random(7))
    for _ in range(2):
        events = [model.change() for _ in range(30)]
        model.chance.shuffle(events)
        source.records(*events, *model.chance.sample(events, 8))
        up.run(source.debezium(), ONCE)
        down.run(sums, ONCE)
        assert up.rows() == sorted(model.table.values(), key=repr)
        of_name: dict[str, list[int]] = {}
        for row in model.table.values():
            of_name.setdefault(row["name"], []).append(row["id"])
        wanted = [{"name": name, "rows": len(ids), "ids": sum(ids)} for name, ids in of_name.items() if name != "n2"]
        assert down.rows() == sorted(wanted, key=repr)


def test_an_event_that_cannot_be_applied_stops_the_stream(stream: StreamUnderTest, source: Source) -> None:
    source.records(event("c", 1, None, customer(1, "Ada")))
    source.records(event("t", 5))
    message = r"the table was truncated at its source.*source_lsn=5.*asset=flights/delays"
    with pytest.raises(InvalidPipelineError, match=message):
        stream.run(source.debezium(), ONCE)
    assert names(stream) == {1: "Ada"}


def test_events_that_cannot_be_applied_are_recognized(spark: SparkSession, source: Source) -> None:
    """What the operator refuses, each with an error of its own: `operators/rows/test_changes_from.py`."""
    values: list[tuple[Row | str, tuple[str, int | None, int | None]]] = [
        (event("t", 5), (TRUNCATE, None, 5)),
        ("no JSON", (UNREADABLE, None, None)),
        ("", (UNREADABLE, None, None)),
        (event("u", 5, None, {"id": "one", "name": "A"}), (UNREADABLE, None, 5)),
        (event("d", 5), (NO_ROW, None, 5)),
        (event("u", 5, None, {"Id": 1}), (PUT, None, 5)),
        (event("u", None, None, customer(1, "Ada")), (PUT, 1, None)),
        (event("m", 5), ("m", None, 5)),
        (event("c", None, None, customer(1, "Ada"), file="CommitLog-7-16.log", pos=4), (UNORDERED, 1, None)),
        (event("c", None, None, customer(1, "Ada"), scn="a/b"), (UNORDERED, 1, None)),
    ]
    source.records(*(value for value, _ in values))
    records = spark.read.schema(RECORDS).parquet(str(source.inbox))
    frame = changes_from(records, "debezium", schema=CUSTOMERS, key="id").frame
    found = frame.orderBy("_offset").select(KIND, "id", "_source_lsn").collect()
    assert [tuple(row) for row in found] == [row for _, row in values]


DIGITS = "00000027:00000758:000"
IN_ORDER: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "MySQL": (
        {},
        [
            {"file": "", "pos": 0},
            {"file": "mysql-bin.999999", "pos": 4000, "row": 0},
            {"file": "mysql-bin.1000000", "pos": 150, "row": 9},
            {"file": "mysql-bin.1000000", "pos": 150, "row": 10},
            {"file": "mysql-bin.1000000", "pos": 1500, "row": 0},
        ],
    ),
    "Oracle": ({}, [{"scn": "999"}, {"scn": "1000"}, {"scn": str(2**62)}]),
    "PostgreSQL": ({}, [{"lsn": 999}, {"lsn": 1000}]),
    "SQL Server": (
        {},
        [
            {"commit_lsn": f"{DIGITS}9", "change_lsn": f"{DIGITS}8", "event_serial_no": 9},
            {"commit_lsn": f"{DIGITS}9", "change_lsn": f"{DIGITS}8", "event_serial_no": 10},
            {"commit_lsn": f"{DIGITS}a", "change_lsn": f"{DIGITS}7", "event_serial_no": 1},
        ],
    ),
    "MariaDB after a failover": (
        {"sequence": "source.gtid"},
        [{"gtid": "0-1-999", "file": "m.000900", "pos": 9}, {"gtid": "0-2-1000", "file": "n.000002", "pos": 4}],
    ),
    "a server of an era of the user's": (
        {"sequence": ["partition", "source.file", "source.pos"]},
        [{"era": 0, "file": "m.000900", "pos": 9}, {"era": 1, "file": "n.000002", "pos": 4}],
    ),
}


@pytest.mark.parametrize("connector", IN_ORDER)
def test_the_positions_of_each_connector_are_in_its_order(spark: SparkSession, source: Source, connector: str) -> None:
    options, positions = IN_ORDER[connector]
    sources = [{"lsn": None, **position} for position in positions]
    source.records(*(event("c", after=customer(n, "A"), **each) for n, each in enumerate(sources)))
    records = spark.read.schema(RECORDS).parquet(str(source.inbox))
    if "era" in positions[0]:
        records = records.withColumn("partition", F.when(F.col("offset") > 0, 1).otherwise(0))
    wanted: Any = {"schema": CUSTOMERS, "key": "id", **options}
    stream = changes_from(records, "debezium", **wanted)
    assert stream.step is not None
    marks = stream.frame.select("id", *stream.step.compared_columns).collect()
    in_order = sorted(marks, key=lambda row: [(value is not None, value) for value in row[1:]])
    assert [row["id"] for row in in_order] == list(range(len(positions)))
    assert {row[KIND] for row in stream.frame.select(KIND).collect()} == {PUT}


def test_a_change_in_a_later_log_file_of_mysql_is_newer_than_one_in_a_file_with_fewer_digits(
    stream: StreamUnderTest, source: Source
) -> None:
    for file, pos, city in [("mysql-bin.999999", 4000, "Bern"), ("mysql-bin.1000000", 150, "Basel")]:
        source.records(event("u", None, None, customer(1, city), file=file, pos=pos, row=0))
    stream.run(source.debezium(), ONCE)
    assert stream.rows() == [customer(1, "Basel")]


def test_a_new_column_needs_a_rollback_and_the_error_names_it(stream: StreamUnderTest, source: Source) -> None:
    source.records(event("c", 1, None, {**customer(1, "Ada"), "city": "Rome"}))
    stream.run(source.debezium())
    with pytest.raises(IncompatibleStateError, match="column city was added"):
        stream.run(source.debezium(schema=f"{CUSTOMERS}, city string"))
    stream.run(source.debezium(schema=f"{CUSTOMERS}, city string"), from_epoch=0)
    assert stream.rows() == [{**customer(1, "Ada"), "city": "Rome"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "debezium"}, r"no such column.* column=after, use=format='debezium'"),
        ({"format": "debezum", "schema": CUSTOMERS}, r"unknown format of changes\. Did you mean 'debezium'\?"),
        ({"schema": CUSTOMERS, "key": "ident"}, r"no such column.* column=ident, use=key"),
        ({"schema": CUSTOMERS, "key": []}, r"changes need the key of the table.*key=\(\)"),
        ({"schema": "id, name"}, r"schema has the table's columns with their types.*schema='id, name'"),
        ({"schema": "id long, at struct<x: int>", "exclude": "at.x"}, r"no such column.* column=at\.x, use=exclude"),
        ({"schema": CUSTOMERS, "sequence": "source.sc"}, r"no such column.* column=sc, use=sequence, columns=lsn"),
        ({"schema": CUSTOMERS, "exclude": "id"}, r"the table has its key.*column=id"),
        ({"schema": f"{CUSTOMERS}, _offset int"}, r"changes_from adds a column of this name.*column=_offset"),
        ({"format": "delta-cdf"}, r"no such column.* column=_change_type"),
        ({"format": "op-column", "op": "topic", "key": "offset"}, r"changes need an order"),
        (
            {"format": "op-column", "op": "topic", "key": "key", "sequence": "offset", "deletes_expire_after": "1s"},
            r"tombstones expire by the time of a delete.*time=None",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_defined(
    stream: StreamUnderTest, source: Source, options: Row, message: str
) -> None:
    wanted: Any = {"format": "debezium", "key": "id", **options}
    source.records()
    with pytest.raises(InvalidPipelineError, match=message):
        stream.run(lambda spark: changes_from(source.read(spark, RECORDS), **wanted))


def test_a_step_behind_it_follows_its_table(spark: SparkSession, source: Source) -> None:
    stream = source.debezium()(spark)
    counted = stream.aggregate(n=agg.count())
    assert counted.steps == (stream, counted)
    assert counted.updating
    with pytest.raises(InvalidPipelineError, match="takes a DataFrame of a source's changes"):
        changes_from(stream, "op-column", key="id")  # type: ignore[arg-type]
    assert stream.frame.where(F.lit(True)).isStreaming


CLIENTS = "id long, region string"
ORDERS = ["Op string", "id long", "client long", "amount long", "v long"]


@dataclass
class Shop:
    """Two tables at their sources, clients as Debezium tells of them and orders with a column for the operation."""

    chance: random.Random
    clients: dict[int | None, str | None] = field(default_factory=dict)
    orders: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    sequence: int = 0

    def of_clients(self) -> Row:
        """A client comes, changes, gets another key, or goes."""
        self.sequence += 1
        id_, region = self.chance.randrange(6), self.chance.choice(["north", "south", "east", None])
        if id_ not in self.clients:
            self.clients[id_] = region
            return event("c", self.sequence, None, {"id": id_, "region": region})
        before = {"id": id_, "region": self.clients.pop(id_)}
        if self.chance.random() < 0.3:
            return event("d", self.sequence, before)
        if self.chance.random() < 0.4:
            id_ = min({*range(20)} - {*self.clients, id_})
        self.clients[id_] = region
        return event("u", self.sequence, before, {"id": id_, "region": region})

    def of_orders(self) -> list[Any]:
        """An order comes, gets another client and amount, or goes: the columns of `ORDERS`."""
        self.sequence += 1
        id_ = self.chance.randrange(12)
        if id_ in self.orders and self.chance.random() < 0.3:
            del self.orders[id_]
            return ["D", id_, None, None, self.sequence]
        op = "U" if id_ in self.orders else "I"
        client = self.chance.choice([None, *range(8)])
        self.orders[id_] = client, self.chance.randrange(5)
        return [op, id_, *self.orders[id_], self.sequence]

    def regions(self) -> list[Row]:
        """The two regions with the greatest totals, of orders with an amount; null is that of unknown clients."""
        amounts = dict[str | None, list[int]]()
        for client, amount in self.orders.values():
            if amount > 0:
                amounts.setdefault(self.clients.get(client), []).append(amount)
        ranked = sorted(amounts.items(), key=lambda of: (-sum(of[1]), of[0] is not None, of[0] or ""))
        return [
            {"region": region, "orders": len(all_), "total": sum(all_), "least": min(all_), "place": place}
            for place, (region, all_) in enumerate(ranked[:2], start=1)
        ]


def test_two_such_tables_are_joined_totalled_and_ranked_in_one_stream(
    stream: StreamUnderTest, source: Source, tmp_path: Path
) -> None:
    """Keys change, rows go and come back, changes come in disorder and again, and the process dies."""
    (tmp_path / "orders").mkdir()
    shop, ordered = Shop(random.Random(3)), Source(tmp_path / "orders")
    expected, sent = list[list[Row]](), (list[Any](), list[Any]())
    for _ in range(4):
        clients: list[Any] = [shop.of_clients() for _ in range(7)]
        orders: list[Any] = [shop.of_orders() for _ in range(8)]
        for changes, so_far in ((clients, sent[0]), (orders, sent[1])):
            so_far.extend(changes)
            changes.extend(shop.chance.sample(so_far, 3))
            shop.chance.shuffle(changes)
        source.records(*clients)
        ordered.rows(pa.table(list(zip(*orders, strict=True)), ["Op", "id", "client", "amount", "v"]))
        expected.append(shop.regions())

    def function(spark: SparkSession) -> Stream:
        clients = source.debezium(schema=CLIENTS, deletes_expire_after="1 day")(spark).select("id AS client", "region")
        frame = ordered.read(spark, ", ".join(ORDERS))
        orders = changes_from(frame, "op-column", op="Op", key="id", sequence="v").where("amount > 0").key_by("client")
        of_regions = orders.join(clients.key_by("client"), how="left").key_by("region")
        totals = of_regions.aggregate(orders=agg.count(), total=agg.sum("amount"), least=agg.min("amount"))
        return totals.top(2, ["total desc", "region asc"], rank="place")

    def die(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 2:
            raise Crash

    with pytest.raises(Crash):
        stream.run(function, ONCE, JobHooks(on_commit=die))
    stream.run(function, ONCE)
    found = [stream.rows(epoch.manifest.epoch) for epoch in stream.epochs if epoch.manifest.statistics.rows_in]
    assert found == [sorted(rows, key=repr) for rows in expected]
    assert len(set(map(repr, expected))) == 4
    assert len(stream.epochs[-1].manifest.pipeline.steps) == 5
    assert sum(epoch.counters[REPEATED] for epoch in stream.epochs) > 0, "of the first two of the steps"
    assert stream.history().verify().whole
