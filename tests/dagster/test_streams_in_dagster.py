"""Streaming assets run by Dagster on real Spark: what commits, what Dagster hears, what is downstream."""

from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster_pyspark import PySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, EpochIOManager, Stream, streaming_asset
from tests.dagster.place import LABELS, Place, add_up, failure_of


def test_two_batches_are_two_epochs_and_an_asset_downstream_is_executed_and_reads_them(place: Place) -> None:
    seen: dict[str, object] = {}

    @dg.asset
    def as_pandas(counts: pd.DataFrame) -> None:
        seen["pandas"] = counts.set_index("k")["n"].to_dict()

    @dg.asset
    def as_arrow(counts: pa.Table) -> None:
        seen["arrow"] = counts.num_rows

    @dg.asset
    def as_it_is(counts) -> None:  # type: ignore[no-untyped-def]
        seen["plain"] = type(counts)

    @dg.asset
    def as_polars(counts: pl.DataFrame) -> None:
        seen["polars"] = counts["total"].sum()

    @dg.asset
    def as_lazy_polars(counts: pl.LazyFrame) -> None:
        seen["lazy"] = counts.collect().height

    @dg.asset
    def as_spark(counts: DataFrame) -> None:
        seen["spark"] = counts.where("k = 'a'").first().asDict()  # type: ignore[union-attr]

    counts = place.counts(code_version="7")
    others = (as_pandas, as_arrow, as_it_is, as_polars, as_lazy_polars, as_spark)
    place.drop(("a", 1), ("b", 2), ("a", 3))
    assert place.run(counts).success
    assert place.table() == {"a": (2, 4), "b": (1, 2)}
    place.drop(("a", 10), ("c", 20))
    assert place.run(counts, others=others).success
    assert place.epochs() == 2
    assert place.table() == {"a": (3, 14), "b": (1, 2), "c": (1, 20)}
    assert seen == {
        "pandas": {"a": 3, "b": 1, "c": 1},
        "arrow": 3,
        "plain": pa.Table,
        "polars": 36,
        "lazy": 3,
        "spark": {"k": "a", "n": 3, "total": 14},
    }
    first, second = place.events()
    sources: Any = None
    for event, rows_in, rows in ((first, 3, 2), (second, 2, 3)):
        epoch = event.metadata["epoch"].value
        assert set(event.metadata) == LABELS
        assert (event.metadata["rows_in"].value, event.metadata["dagster/row_count"].value) == (rows_in, rows)
        assert event.tags is not None
        assert event.tags["dagster/data_version"].startswith(f"counts@{epoch}-")
        assert event.tags["dagster/code_version"] == "7"
        slowest = event.metadata["slowest_shards"]
        assert isinstance(slowest, dg.TableMetadataValue)
        assert sum(int(str(record.data["rows_in"])) for record in slowest.records) == rows_in
        sources = event.metadata["source_positions"].value
        assert sources[0]["address"].endswith("/inbox")
    assert sources[0]["files"] == 2


def test_the_resource_that_starts_spark_at_once_works_as_well(place: Place) -> None:
    place.spark = PySparkResource(spark_config=place.spark.spark_config)  # type: ignore[assignment]
    place.drop(("a", 1))
    assert place.run(place.counts()).success
    assert place.table() == {"a": (1, 1)}


def test_materialize_needs_no_resources_but_checkpoints_and_spark(place: Place) -> None:
    read: list[int] = []

    @dg.asset
    def reader(counts: pa.Table) -> None:
        read.append(counts.num_rows)

    place.drop(("a", 1), ("b", 2))
    resources = {"checkpoints": CheckpointCoordinatorResource(url=place.url), "spark": place.spark}
    assert dg.materialize([place.counts(), reader], resources=resources, instance=place.instance).success
    assert place.table() == {"a": (1, 1), "b": (1, 2)}
    assert read == [2]


def test_missing_input_folder_is_named_with_the_asset(place: Place) -> None:
    @streaming_asset(name="counts")
    def counts(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").parquet(str(place.folder / "nowhere")))

    failure = failure_of(place.run(counts))
    assert "OutsideCodeError: what the stream reads is not there" in failure
    assert failure.strip().endswith(f"asset=counts, path={place.folder / 'nowhere'}")


def test_a_run_that_finds_nothing_new_reports_no_epoch_twice(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 1))
    for _ in range(2):
        assert place.run(counts).success
    first, second = place.events()
    assert (first.metadata["rows_in"].value, second.metadata["rows_in"].value) == (1, 0)
    assert add_up([first, second], place.history().manifest())
    assert (first.tags or {})["dagster/data_version"] == (second.tags or {})["dagster/data_version"]
    assert place.epochs() == 1


def test_a_stream_without_any_input_ends_with_the_empty_epoch(place: Place) -> None:
    assert place.run(place.counts()).success
    [event] = place.events()
    assert event.metadata["epoch"].value == 0
    assert set(event.metadata) == LABELS - {"epoch_nonce", "read_by"}, "no manifest made epoch 0"
    assert place.table() == {}
    [record] = place.instance.fetch_observations(dg.AssetKey("counts"), limit=10).records
    waits = record.asset_observation
    assert waits is not None
    assert waits.metadata["waits_for"].value == f"the first parquet file in file:{place.inbox}"


def test_the_past_is_read_by_input_metadata(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 1))
    place.run(counts)
    [first] = [info.epoch for info in place.history().epochs()]
    time = place.history().latest().committed_at
    place.drop(("a", 2))
    place.run(counts)
    seen = []

    def before(**chosen: object) -> dg.AssetsDefinition:
        @dg.asset(name=f"before_{next(iter(chosen), 'now')}", ins={"counts": dg.AssetIn(metadata=chosen)})
        def before(counts: pd.DataFrame) -> None:
            seen.append(counts["total"].tolist())

        return before

    result = place.run(counts, others=(before(epoch=first), before(as_of=time.isoformat()), before()))
    assert result.success
    assert sorted(seen) == [[1], [1], [3]]
    for name, epoch in {"before_epoch": first, "before_now": place.history().latest().epoch}.items():
        [event] = result.asset_materializations_for_node(name)
        assert event.metadata["epoch/counts"].value == epoch
    result = place.run(counts, others=(before(epoch=999),))
    assert "no such epoch" in failure_of(result)


# Dagster itself still reads what it has deprecated, where one resource holds another.
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_another_code_location_reads_a_stream_that_it_only_declares(place: Place) -> None:
    place.drop(("a", 1))
    assert place.run(place.counts()).success
    seen = []

    @dg.asset
    def report(counts: pd.DataFrame) -> None:
        seen.append(len(counts))

    elsewhere = dg.Definitions(
        [dg.AssetSpec("counts").with_io_manager_key("epochs"), report],
        resources={"epochs": EpochIOManager(checkpoints=CheckpointCoordinatorResource(url=place.url))},
    )
    assert elsewhere.resolve_implicit_global_asset_job_def().execute_in_process(instance=place.instance).success
    assert seen == [1]


def test_an_input_that_a_table_cannot_become_is_a_clear_error(place: Place) -> None:
    @dg.asset
    def wrong(counts: list) -> None: ...  # type: ignore[type-arg]

    place.drop(("a", 1))
    assert "annotate the input" in failure_of(place.run(place.counts(), others=(wrong,)))


class Prefix(dg.ConfigurableResource):  # type: ignore[type-arg]
    text: str


class Limit(dg.Config):
    least: int = 0


def test_a_function_gets_its_config_its_resources_and_its_context(place: Place) -> None:
    @streaming_asset
    def chosen(limit: Limit, prefix: Prefix, context: dg.AssetExecutionContext, spark: SparkSession) -> Stream:
        """Only big values, renamed."""
        key = context.asset_key.to_user_string()
        return Stream(place.read(spark).where(f"v >= {limit.least}").selectExpr(f"'{prefix.text}{key}' as k", "v"))

    place.drop(("a", 1), ("b", 5))
    definitions = place.definitions(streams=[chosen])
    definitions = dg.Definitions.merge(definitions, dg.Definitions(resources={"prefix": Prefix(text=">")}))
    job = definitions.resolve_job_def("chosen_job")
    result = job.execute_in_process(
        instance=place.instance, run_config={"ops": {"chosen": {"config": {"least": 5, "mode": "available_now"}}}}
    )
    assert result.success
    assert place.history("chosen").read().select(["k", "v"]).to_pylist() == [{"k": ">chosen", "v": 5}]


@pytest.mark.parametrize("path", [["délai.max"], ["a/b"], ["..", "x"]], ids=str)
def test_a_strange_asset_key_stays_inside_its_own_folder(place: Place, path: list[str]) -> None:
    counts = place.counts(key=path)
    seen = []

    @dg.asset(ins={"table": dg.AssetIn(key=counts.key)})
    def report(table: pd.DataFrame) -> None:
        seen.append(len(table))

    place.drop(("a", 1), ("b", 1))
    assert place.run(counts, others=(report,)).success
    assert seen == [2]
    [folder] = (place.folder / "store").iterdir()
    assert folder.is_dir()
    assert {entry.name for entry in place.folder.iterdir()} <= {"store", "inbox", "storage"}


def test_several_streams_in_one_run_work_through_what_is_there_one_after_another(place: Place) -> None:
    place.drop(("a", 1))
    streams = [place.counts(name=name, mode="continuous") for name in ("one", "two")]
    assert place.run(*streams).success
    assert place.table("one") == place.table("two") == {"a": (1, 1)}


def test_a_continuous_stream_asked_for_beside_another_is_an_error_before_spark_starts(place: Place) -> None:
    class NoSpark(dg.ConfigurableResource):  # type: ignore[type-arg]
        spark_config: dict[str, str] = {}  # noqa: RUF012 (a field's default)

        @property
        def spark_session(self) -> SparkSession:
            raise AssertionError("Spark must not be started")

    place.spark = NoSpark()  # type: ignore[assignment]
    streams = [place.counts(name=name) for name in ("one", "two")]
    config = {"ops": {name: {"config": {"mode": "continuous"}} for name in ("one", "two")}}
    result = place.run(*streams, run_config=config)
    errors = [
        e.step_failure_data.error.cause.message for e in result.all_events if e.event_type_value == "STEP_FAILURE"
    ]
    assert len(errors) == 2
    assert all("needs a separate Dagster run" in error and "streams=one, two" in error for error in errors)


def test_a_function_that_returns_no_stream_is_refused_and_not_retried(place: Place) -> None:
    @streaming_asset
    def forgetful(spark: SparkSession):  # type: ignore[no-untyped-def]
        place.read(spark)

    result = place.run(forgetful)
    assert "returns a Stream, a streaming DataFrame, or the text of a query" in failure_of(result)
    run = place.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["dagster_ckpt/unfit"] == f"{result.run_id} forgetful"


def test_secrets_in_storage_options_reach_no_repr() -> None:
    checkpoints = CheckpointCoordinatorResource(url="s3://bucket/store", storage_options={"secret": "s3cr3t"})
    assert "s3cr3t" not in repr(checkpoints) + repr(checkpoints.address) + str(checkpoints)
