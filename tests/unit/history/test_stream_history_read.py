from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory, stream_table
from dagster_ckpt.operators import AppendOnly, Operator
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.tables import Share, table_rows
from tests.unit.history.made_streams import HOUR_US, SOURCE, MadeStream, aggregate, append, departures

NAME = "flights/delay_by_carrier"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def history(url: str, name: str = NAME) -> StreamHistory:
    return CheckpointStore(url).stream(name)


def by_carrier(table: pa.Table) -> dict[str | None, tuple[int, float]]:
    rows = table.to_pylist()
    assert len({row["carrier"] for row in rows}) == len(rows)
    return {row["carrier"]: (row["flights"], row["mean_delay"]) for row in rows}


def test_a_keyed_table_is_what_its_operator_makes_of_the_state_of_the_epoch(url: str) -> None:
    stream = MadeStream(url, NAME)
    first = stream.commit(departures({"UA": [1.0, 5.0], None: [3.0]}))
    second = stream.commit(departures({"UA": [6.0], "AA": [7.0]}))
    stream.commit()
    stream.close()
    assert by_carrier(history(url).read(first)) == {"UA": (2, 3.0), None: (1, 3.0)}
    assert by_carrier(history(url).read(second)) == {"UA": (3, 4.0), None: (1, 3.0), "AA": (1, 7.0)}
    assert history(url).read().equals(history(url).read(second))


def test_what_is_read_carries_its_stream_and_epoch(url: str) -> None:
    stream = MadeStream(url, NAME)
    first = stream.commit(departures({"UA": [1.0]}))
    second = stream.commit(departures({"UA": [6.0]}))
    stream.close()
    read = history(url)
    uuid = read.manifest().uuid.encode()
    nonces = {epoch: read.manifest(epoch).nonce.encode() for epoch in (first, second)}
    tables = {second: [read.read(), read.get({"carrier": ["UA"]})], first: [read.read(first, columns=["flights"])]}
    tables[first].append(read.get({"carrier": ["UA"]}, first))
    for epoch, each in tables.items():
        for table in each:
            assert table.schema.metadata == {
                b"dagster_ckpt.stream": NAME.encode(),
                b"dagster_ckpt.stream_id": uuid,
                b"dagster_ckpt.epoch": str(epoch).encode(),
                b"dagster_ckpt.nonce": nonces[epoch],
            }


def test_an_append_only_table_is_its_files_without_the_columns_of_the_change_log(url: str) -> None:
    stream = MadeStream(url, "departures", append())
    first = stream.commit(departures({"UA": [1.0, 5.0], None: [3.0]}))
    stream.commit(departures({"AA": [7.0]}))
    stream.close()
    table = history(url, "departures").read()
    assert table.schema == append().pipeline.output
    assert sorted(table["dep_delay"].to_pylist()) == [1.0, 3.0, 5.0, 7.0]
    assert history(url, "departures").read(first).num_rows == 3


def test_a_column_that_comes_back_with_another_type_is_an_error_until_it_has_another_name(url: str) -> None:
    def rows(**columns: pa.Array) -> pa.Table:
        return pa.table({"carrier": ["UA"], **columns})

    tables = [rows(gate=pa.array(["B7"])), rows(), rows(gate=pa.array([7])), rows(stand=pa.array([7]))]
    for table in tables[:3]:
        stream = MadeStream(url, "departures", AppendOnly.build(InputSpec((SOURCE,), table.schema)))
        stream.commit(table)
        stream.close()
    named = r"another name in the code.*column=gate, was=string, now=int64"
    with pytest.raises(IncompatibleStateError, match=named):
        history(url, "departures").read()
    with pytest.raises(IncompatibleStateError, match=named):
        history(url, "departures").changes(after=0)
    stream = MadeStream(url, "departures", AppendOnly.build(InputSpec((SOURCE,), tables[3].schema)))
    stream.commit(tables[3])
    stream.close()
    assert history(url, "departures").read()["stand"].to_pylist() == [None, None, None, 7]


@pytest.mark.parametrize("operator", [aggregate(), append()], ids=["keyed", "append-only"])
def test_threads_read_a_table_of_many_rows_each_row_once(
    operator: Operator, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = MadeStream(url, NAME, operator)
    for day in range(3):
        stream.commit(departures({f"{day}-{number}": [number] for number in range(20)}))
    stream.close()
    alone = history(url).read()
    asked: list[Share] = []

    def noting(*of: object) -> Iterator[pa.RecordBatch]:
        asked.append(of[-1])  # type: ignore[arg-type]
        return table_rows(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(stream_table, "ROWS_A_THREAD", 10)
    monkeypatch.setattr(stream_table, "table_rows", noting)
    monkeypatch.setattr(pa, "cpu_count", lambda: 4)
    together = history(url).read()
    assert sorted(asked, key=lambda share: share.number) == [Share(number, 4) for number in range(4)]
    assert together.sort_by("carrier").equals(alone.sort_by("carrier"))


def test_an_append_only_table_is_whole_also_where_its_list_of_files_has_moved_to_index_objects(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 2)
    stream = MadeStream(url, "departures", append())
    for delay in range(7):
        stream.commit(departures({"UA": [delay], "AA": [delay]}))
    stream.close()
    assert stream.writer.manifest.files.index
    assert sorted(history(url, "departures").read()["dep_delay"].to_pylist()) == sorted([*range(7), *range(7)])


@pytest.mark.parametrize("operator", [None, append()])
def test_columns_are_chosen_in_the_order_asked_for(url: str, operator: object) -> None:
    stream = MadeStream(url, NAME) if operator is None else MadeStream(url, NAME, append())
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    last = "mean_delay" if operator is None else "dep_delay"
    table = history(url).read(columns=[last, "carrier"])
    assert table.to_pylist() == [{last: 1.0, "carrier": "UA"}]
    assert table.column_names == [last, "carrier"]
    assert history(url).read(columns=[]).shape == (1, 0), "the rows are counted all the same"


def test_an_unknown_column_is_refused_with_the_ones_there_are_and_a_close_one(url: str) -> None:
    MadeStream(url, NAME).close()
    with pytest.raises(InvalidPipelineError, match=r"Did you mean 'flights'\?.*mean_delay") as refused:
        history(url).read(columns=["flihgts"])
    assert "column='flihgts'" in str(refused.value)
    with pytest.raises(InvalidPipelineError, match="list of names"):
        history(url).read(columns="flights")


def test_a_stream_that_has_committed_nothing_is_an_empty_table_at_epoch_0(url: str) -> None:
    MadeStream(url, NAME).close()
    MadeStream(url, "departures", append()).close()
    assert history(url).latest().epoch == 0
    assert history(url).epochs() == []
    assert history(url).read().num_rows == history(url, "departures").read().num_rows == 0
    assert history(url).read().column_names == ["carrier", "flights", "mean_delay"]


def test_the_latest_epoch_says_what_it_did_and_what_the_stream_holds(url: str) -> None:
    before = datetime.now(UTC)
    stream = MadeStream(url, NAME)
    stream.commit(departures({"UA": [1.0, 5.0], "AA": [3.0]}), hours=2)
    epoch = stream.commit(departures({"UA": [6.0]}), hours=1)
    stream.close()
    latest = history(url).latest()
    assert (latest.stream, latest.epoch, latest.version, latest.current) == (NAME, epoch, epoch, True)
    assert (latest.rows_in, latest.rows_out, latest.state_rows) == (1, 2, 2)
    assert (latest.total_rows_in, latest.total_epochs, latest.epoch_ms) == (4, 2, 12)
    assert latest.state_bytes > 0
    assert latest.change_bytes > 0
    assert before - timedelta(seconds=1) <= latest.committed_at <= datetime.now(UTC)
    assert latest.event_time == datetime(1970, 1, 1, 2, tzinfo=UTC)
    assert latest.watermark == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_the_latest_epoch_stays_the_same_when_a_new_writer_opens_the_stream(url: str) -> None:
    stream = MadeStream(url, NAME)
    stream.commit(departures({"UA": [1.0]}))
    before = history(url).latest()
    stream.open()
    stream.close()
    assert history(url).latest() == before
    assert history(url).manifest().version == before.version + 1


def test_epochs_come_newest_first_and_no_more_than_are_retained(url: str) -> None:
    stream = MadeStream(url, NAME, retained=3)
    epochs = [stream.commit(departures({"UA": [1.0]})) for _ in range(5)]
    stream.close()
    listed = history(url).epochs()
    assert [info.epoch for info in listed] == epochs[:1:-1]
    assert [info.total_rows_in for info in listed] == [5, 4, 3]
    assert [info.current for info in listed] == [True, False, False]
    assert listed[0] == history(url).latest()
    with pytest.raises(InvalidPipelineError, match=r"no longer kept.*retained=4-6"):
        history(url).read(epochs[0])


def test_as_of_reads_the_newest_epoch_committed_by_then(url: str) -> None:
    stream = MadeStream(url, NAME)
    first = stream.commit(departures({"UA": [1.0]}))
    committed_at = history(url).latest().committed_at
    stream.writer._chain.clock.sleep_ms(5)
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    assert history(url).info(as_of=committed_at).epoch == first
    assert by_carrier(history(url).read(as_of=committed_at.isoformat())) == {"UA": (1, 1.0)}
    assert history(url).manifest(as_of=committed_at).epoch == first


def test_after_a_rollback_readers_see_the_older_epoch_and_not_what_it_left_behind(url: str) -> None:
    stream = MadeStream(url, NAME)
    first = stream.commit(departures({"UA": [1.0]}))
    lost = stream.commit(departures({"UA": [9.0], "AA": [9.0]}))
    stream.open(from_epoch=first)
    assert history(url).latest().epoch == first
    assert by_carrier(history(url).read()) == {"UA": (1, 1.0)}
    assert by_carrier(history(url).read(lost)) == {"UA": (2, 5.0), "AA": (1, 9.0)}, "until it is retired"
    later = stream.commit(departures({"UA": [3.0]}))
    stream.close()
    assert [(info.epoch, info.abandoned) for info in history(url).epochs()] == [
        (later, False),
        (lost, True),
        (first, False),
    ]
    assert by_carrier(history(url).read()) == {"UA": (2, 2.0)}


def test_a_manifest_is_a_value_with_all_there_is_to_know(url: str) -> None:
    stream = MadeStream(url, NAME)
    epoch = stream.commit(departures({"UA": [1.0]}), hours=2)
    stream.commit()
    stream.close()
    manifest = history(url).manifest(epoch)
    assert (manifest.epoch, manifest.stream, manifest.event_times_us) == (epoch, NAME, (2 * HOUR_US,))
    assert history(url).manifest() == stream.writer.manifest
