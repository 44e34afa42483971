"""`streaming_sql` makes an asset of each table: what it reads, its options, and what Dagster shows of it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    InvalidPipelineError,
    Stream,
    build_streaming_definitions,
    source,
    streaming_asset,
    streaming_sql,
)
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction, of_asset
from dagster_ckpt.runtime.run_mode import Mode

RAW = source("orders", lambda spark: spark.readStream.format("rate").load())
SHOP = {
    "1_sources.sql": """
        CREATE TEMPORARY VIEW orders (buyer STRING, price INT) USING parquet OPTIONS (path '/data/orders');
        CREATE TEMPORARY VIEW Large AS SELECT * FROM orders WHERE price > 100;
    """,
    "marts/spent.sql": """
        CREATE MATERIALIZED VIEW spent (buyer STRING COMMENT 'Who pays.', euro BIGINT)
        COMMENT 'What each buyer spent.'
        TBLPROPERTIES ('dagster_ckpt.mode' = 'continuous', 'dagster_ckpt.interval' = '2s', 'quality' = 'gold')
        AS SELECT buyer, sum(price) AS euro FROM large JOIN shop.regions USING (buyer) GROUP BY buyer
    """,
    "marts/top3.sql": "SELECT * FROM SPENT ORDER BY euro DESC LIMIT 3",
}


def folder(root: Path, files: Mapping[str, str] = SHOP) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def by_name(assets: list[dg.AssetsDefinition]) -> dict[str, dg.AssetsDefinition]:
    return {asset.key.path[-1]: asset for asset in assets}


def streaming(asset: dg.AssetsDefinition) -> StreamingFunction:
    found = of_asset(asset)
    assert found is not None
    return found


def view(query: str, name: str = "v") -> str:
    return f"CREATE MATERIALIZED VIEW {name} AS {query}"


def refusal(sql: str | Path, **options: Any) -> str:
    with pytest.raises(InvalidPipelineError) as refused:
        streaming_sql(sql, **options)
    return str(refused.value)


def parents(asset: dg.AssetsDefinition) -> set[str]:
    return {key.to_user_string() for key in asset.dependency_keys}


def test_a_folder_is_an_asset_for_each_table(tmp_path: Path) -> None:
    assets = by_name(streaming_sql(folder(tmp_path), group_name="shop", tags={"a": "b"}, metadata={"team": "web"}))
    spent, top = assets["spent"], assets["top3"]
    assert (parents(spent), parents(top)) == ({"orders", "shop/regions"}, {"spent"})
    spec = spent.get_asset_spec()
    assert (spec.description, spec.group_name, spec.tags["a"]) == ("What each buyer spent.", "shop", "b")
    assert (spec.metadata["quality"], spec.metadata["team"]) == ("gold", "web")
    schema = spec.metadata["dagster/column_schema"]
    columns = [(each.name, each.type, each.description) for each in schema.columns]
    assert columns == [("buyer", "string", "Who pays."), ("euro", "bigint", None)]
    [reference] = spec.metadata["dagster/code_references"].code_references
    assert (reference.file_path, reference.line_number) == (str(tmp_path / "marts/spent.sql"), 2)
    options = streaming(spent).options
    assert (options.mode, options.checkpoint_interval_ms) == (Mode.CONTINUOUS, 2_000)
    [external] = options.sources
    assert (external.key, external.kinds) == (dg.AssetKey("orders"), {"parquet"})
    assert streaming(top).options.mode is Mode.AVAILABLE_NOW
    assert streaming(top).parameters.upstreams == {"spent": Stream}


def test_all_of_it_loads_in_a_code_location(tmp_path: Path) -> None:
    @streaming_asset
    def buyers(spark: SparkSession) -> Stream:
        raise NotImplementedError

    both = {**SHOP, "both.sql": "SELECT * FROM spent JOIN buyers USING (buyer) JOIN RAW r ON r.value = spent.euro"}
    defs = build_streaming_definitions(
        [buyers],
        CheckpointCoordinatorResource(url="file:///nowhere"),
        spark=LazyPySparkResource(spark_config={}),
        sql=folder(tmp_path, both),
        sources={"raw": RAW},
    )
    dg.Definitions.validate_loadable(defs)
    graph = defs.get_repository_def().asset_graph
    assert {key.to_user_string() for key in graph.executable_asset_keys} == {"buyers", "spent", "top3", "both"}
    assert graph.get(dg.AssetKey("both")).parent_keys == {dg.AssetKey(key) for key in ("spent", "buyers", "raw")}
    with pytest.raises(InvalidPipelineError, match=r"give sql too. sources=\['raw'\]"):
        build_streaming_definitions([buyers], sources={"raw": RAW})


def test_the_version_of_the_code_is_that_of_the_query_and_its_views(tmp_path: Path) -> None:
    def versions(**changed: str) -> list[str | None]:
        files = {**SHOP, **{name.replace("__", "/") + ".sql": text for name, text in changed.items()}}
        return [asset.get_asset_spec().code_version for asset in streaming_sql(folder(tmp_path, files))]

    spent, top = versions()
    other_view = SHOP["1_sources.sql"].replace("> 100", "> 200")
    assert versions() == [spent, top]
    changed, same = versions(**{"1_sources": other_view})
    assert changed != spent
    assert same == top
    of_source = SHOP["1_sources.sql"].replace("'/data/orders'", "'/data/orders2'")
    assert versions(**{"1_sources": of_source}) not in ([spent, top], [changed, top])
    [given, _] = streaming_sql(tmp_path, code_version="7")
    assert given.get_asset_spec().code_version == "7"


def test_a_prefix_is_that_of_tables_and_sources_and_names_are_found_without_it() -> None:
    text = view("SELECT * FROM Orders", "a") + ";" + view("SELECT * FROM A JOIN static_regions s USING (x)", "b")
    ins = {"static_regions": dg.AssetIn("regions", metadata={"static": True})}
    a, b = streaming_sql(text, sources={"orders": RAW}, ins=ins, key_prefix=["shop", "eu"])
    assert (a.key.path, parents(a), parents(b)) == (["shop", "eu", "a"], {"shop/eu/orders"}, {"shop/eu/a", "regions"})
    parameters = streaming(b).parameters
    assert (parameters.upstreams, parameters.inputs) == ({"a": Stream}, {"static_regions": DataFrame})


def test_names_that_python_or_dagster_reserves_are_names_of_tables() -> None:
    text = ";".join(view("SELECT * FROM orders", name) for name in ("spark", "class", "type"))
    text += ";" + view("SELECT * FROM spark JOIN class USING (a) JOIN type USING (a)", "b")
    assets = streaming_sql(text, sources={"orders": RAW}, key_prefix="shop")
    assert parents(assets[-1]) == {"shop/spark", "shop/class", "shop/type"}
    assert "Dagster refuses this asset" in refusal(text, sources={"orders": RAW})


def test_what_is_read_can_be_named_where_it_is_not_found_in_the_text() -> None:
    query = "SELECT a b c FROM orders"
    named = view(query).replace(" AS ", " TBLPROPERTIES ('dagster_ckpt.reads' = 'orders, shop.regions') AS ", 1)
    [asset] = streaming_sql(named, sources={"orders": RAW})
    assert parents(asset) == {"orders", "shop/regions"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (view("SELECT * FROM ordres"), "Did you mean 'orders'? Declare a source"),
        (view("SELECT 1 FROM zzz"), "nothing of this name is declared. Declare a source"),
        (view("SELECT 1"), "the query reads no stream and no source"),
        (view("SELECT * FROM db.t"), "the query reads no stream and no source"),
        (view("SELECT * FROM v"), "a table cannot read itself"),
        (view("SELECT * FROM STREAM orders"), "leave STREAM out, or write CREATE STREAMING TABLE"),
        ("CREATE STREAMING TABLE t AS SELECT * FROM orders", "write STREAM orders, or CREATE MATERIALIZED VIEW"),
        (view("SELECT * FROM b", "a") + ";" + view("SELECT * FROM a", "b"), "in a circle: break it. tables=['a', 'b']"),
        (view("SELECT * FROM orders") + ";" + view("SELECT * FROM orders", "V"), "this name is taken: give another"),
        (view("SELECT * FROM orders", "orders"), "a source in Python has this name"),
        (
            view("SELECT * FROM orders").replace(" AS ", " TBLPROPERTIES ('dagster_ckpt.shards' = '3') AS "),
            "power of two",
        ),
        (view("SELECT * FROM orders").replace(" AS ", " TBLPROPERTIES ('dagster_ckpt.owners' = 'x y') AS "), "x y"),
        (
            "CREATE TEMPORARY VIEW a AS SELECT * FROM b;CREATE TEMPORARY VIEW b AS SELECT * FROM a;"
            + view("SELECT * FROM a"),
            "views read each other in a circle: break it. circle=v -> a -> b -> a",
        ),
        (
            "CREATE TEMPORARY VIEW a AS SELECT * FROM STREAM orders;" + view("SELECT * FROM a"),
            "a materialized view is made of tables as they are now",
        ),
        (
            "CREATE TEMPORARY VIEW f USING parquet OPTIONS (path '/x');" + view("SELECT * FROM f"),
            "files need columns and a path",
        ),
        (
            "CREATE TEMPORARY VIEW f (a INT) USING json OPTIONS (path 'x');" + view("SELECT * FROM f"),
            "'${env:DATA}/x'. source=f, path=x",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(text: str, expected: str) -> None:
    error = refusal(text, sources={"orders": RAW})
    assert expected in error
    assert error.endswith("line=1") or "line=1, " in error


def test_no_file_and_no_table_are_refused(tmp_path: Path) -> None:
    assert f"path={tmp_path}" in refusal(tmp_path)
    assert "path=" in refusal("models/nowhere")
    assert "no statement makes an asset" in refusal("CREATE TEMPORARY VIEW a USING rate")


def test_two_assets_of_one_name_have_to_be_told_apart() -> None:
    @streaming_asset(key=["a", "orders"])
    def one(spark: SparkSession) -> Stream:
        raise NotImplementedError

    @streaming_asset(key=["b", "orders"])
    def other(spark: SparkSession) -> Stream:
        raise NotImplementedError

    text = view("SELECT * FROM orders")
    assert "say which by ins" in refusal(text, assets=[one, other])
    [asset] = streaming_sql(text, assets=[one, other], ins={"orders": dg.AssetIn(["b", "orders"])})
    assert parents(asset) == {"b/orders"}
    [asset] = streaming_sql(text, ins={"orders": dg.AssetIn(key_prefix="c")})
    assert parents(asset) == {"c/orders"}
    assert "the same name: rename one of them" in refusal(text, assets=[one], sources={"orders": RAW}, key_prefix="a")


def test_the_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    assert "pip install 'dagster-ckpt[sql]'" in refusal(view("SELECT * FROM orders"))


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("SELECT *\nFROM orders\nLIMIT 3", 4),
        ("SELECT buyer, count(*) AS n\nFROM orders GROUP BY buyer\n  LIMIT 3 OFFSET 2", 4),
        ("SELECT *\nFROM (SELECT price\nFROM orders LIMIT 2) ORDER BY price", 4),
        ("WITH some AS (SELECT *\nFROM orders LIMIT 2)\nSELECT * FROM some", 3),
        ("FROM orders\nLIMIT 3", 3),
        ("SELECT * FROM orders o WHERE price IN\n(SELECT price FROM orders LIMIT 5)", 3),
        ("SELECT sum(price) OVER (ORDER BY price\nROWS BETWEEN 10001 PRECEDING AND CURRENT ROW) AS s FROM orders", 2),
        ("SELECT buyer,\nmax(price) OVER w AS m\nFROM orders WINDOW w AS (ORDER BY\nprice ROWS 20000 PRECEDING)", 4),
        ("SELECT buyer,\nnth_value(price, 0) OVER (ORDER BY price) AS n FROM orders", 3),
        ("SELECT buyer,\nnth_value(price, 10001) OVER (ORDER BY price) AS n FROM orders", 3),
        ("SELECT\nntile(10001) OVER (ORDER BY price) AS n\nFROM orders", 3),
        ("SELECT buyer,\nlag(price, 10001) OVER (ORDER BY price) AS n FROM orders", 3),
        ("SELECT buyer,\nlead(price, -10001) OVER (ORDER BY price) AS n FROM orders", 3),
    ],
)
def test_what_the_text_alone_shows_is_refused_before_spark(query: str, line: int) -> None:
    said = "say which by ORDER BY|rows away|takes a whole number from"
    with pytest.raises(InvalidPipelineError, match=rf"({said}).*found=.*, file=<text>, line={line}$"):
        streaming_sql(view(f"\n{query}"), sources={"orders": RAW})


def test_the_text_of_a_view_is_looked_at_too() -> None:
    text = "CREATE TEMPORARY VIEW some AS\n(SELECT *\nFROM orders LIMIT 1);\n" + view("SELECT * FROM some")
    with pytest.raises(InvalidPipelineError, match=r"say which by ORDER BY.*line=3$"):
        streaming_sql(text, sources={"orders": RAW})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders ORDER BY price LIMIT 3",
        "SELECT count(*) AS n FROM orders LIMIT 1",
        "SELECT first(price, true) AS n FROM orders LIMIT 1",
        "SELECT my_own(price) AS n FROM orders LIMIT 1",
        "SELECT 1 AS one FROM orders LIMIT 1",
        "SELECT * FROM orders LIMIT ALL",
        "SELECT * FROM orders LIMIT 0",
        "SELECT * FROM orders WHERE EXISTS (SELECT price FROM orders LIMIT 1)",
        "SELECT n FROM (SELECT count(*) AS n FROM orders) LIMIT 1",
        "WITH one AS (SELECT count(*) AS n FROM orders) SELECT n FROM one LIMIT 1",
        "SELECT n FROM totals LIMIT 1",
        "SELECT sum(price) OVER (ORDER BY price ROWS BETWEEN 10000 PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM orders",
        "SELECT sum(price) OVER (ORDER BY price RANGE BETWEEN 20000 PRECEDING AND CURRENT ROW) AS s FROM orders",
        "SELECT nth_value(price, 10000) OVER (ORDER BY price) AS n, lag(price) OVER (ORDER BY price) AS l FROM orders",
    ],
)
def test_what_spark_may_make_something_of_is_left_to_it(query: str) -> None:
    totals = "CREATE TEMPORARY VIEW totals AS SELECT count(*) AS n FROM orders;"
    streaming_sql(f"{totals}{view(query)}", sources={"orders": RAW})


def test_a_primary_key_is_declared_among_the_columns_or_as_a_property() -> None:
    by_columns = (
        "CREATE MATERIALIZED VIEW v (buyer STRING, `the day` DATE, PRIMARY KEY (buyer, `the day`)) AS FROM orders"
    )
    by_property = (
        "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('dagster_ckpt.primary_key' = 'buyer, the day') AS FROM orders"
    )
    for text in (by_columns, by_property):
        [asset] = streaming_sql(text, sources={"orders": RAW})
        assert streaming(asset).options.primary_key == ("buyer", "the day")
    alone = "CREATE MATERIALIZED VIEW v (PRIMARY KEY (buyer)) AS SELECT * FROM orders"
    [asset] = streaming_sql(alone, sources={"orders": RAW})
    assert streaming(asset).options.primary_key == ("buyer",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(a INT, PRIMARY KEY (a), PRIMARY KEY (b)) AS", "one primary key"),
        ("(a INT, PRIMARY KEY (a, a)) AS", "names columns, each once"),
        ("(PRIMARY KEY (a)) TBLPROPERTIES ('dagster_ckpt.primary_key' = 'a') AS", "given twice"),
        ("(a INT, CONSTRAINT c CHECK (a > 1)) AS", r"no constraint but PRIMARY KEY \(columns\)"),
        ("(a INT, FOREIGN KEY (a) REFERENCES b) AS", r"no constraint but PRIMARY KEY \(columns\)"),
    ],
)
def test_other_constraints_and_a_second_key_are_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(InvalidPipelineError, match=rf"{said}.*file=<text>, line=1"):
        streaming_sql(f"CREATE MATERIALIZED VIEW v {text} SELECT * FROM orders", sources={"orders": RAW})
