"""`dg scaffold defs dagster_ckpt.StreamingComponent delay_by_carrier`: a stream that runs as it is.

`dg scaffold defs dagster_ckpt.StreamingSqlComponent models` writes a folder with one in SQL. `dg scaffold defs
dagster_ckpt.DeliveryComponent delays_in_files` writes a delivery that only lacks its stream's key.
"""

from pathlib import Path
from string import Template

import dagster as dg

_YAML = Template("""\
type: $type

attributes:
  asset:
    key: $key
    description: How many rows have come of each key.

  # What the stream reads. This is a source for tries: Spark makes the rows of each batch. Files, for instance, are
  #   source:
  #     format: parquet
  #     path: "{{ context.project_root }}/data/departures"
  #     schema: carrier string, dep_delay double
  # and `upstream: other_stream` or `function: .streams.my_function` take the place of `source`.
  source:
    format: rate-micro-batch
    options:
      rowsPerBatch: 100

  # In this order. Also: select, with_watermark, window and deduplicate.
  steps:
    - where: value >= 0
    - with_columns:
        key: value % 10
    - key_by: [key]
    - aggregate:
        rows: count()
        largest: {max: value}

  # An epoch every interval, until you stop it. Without both, Materialize processes what is there, and ends.
  # mode: continuous
  # autostart: true

  # Give these equal values in each component, or leave them out and declare them once, in defs/resources.py.
  checkpoints:
    url: "file://{{ context.project_root }}/checkpoints"
  spark:
    spark.master: local[2]
""")

_PYTHON = Template('''\
import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import Stream, StreamingComponent, agg


def $key(spark: SparkSession) -> Stream:
    """How many rows have come of each key."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    return Stream(rows.selectExpr("value", "value % 10 AS key")).key_by("key").aggregate(
        rows=agg.count(), largest=agg.max("value")
    )


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> StreamingComponent:
    return StreamingComponent(asset=dg.AssetSpec("$key"), function=$key)
''')


_DELIVERY_YAML = Template("""\
type: $type

attributes:
  # The key of the stream that is delivered.
  stream: my_stream
  name: $key

  # Also delta_lake, kafka and others: dg utils inspect-component $type --defs-yaml-schema. A database, for instance, is
  #   postgres:
  #     url: "{{ env.SHOP_URL }}"
  #     table: my_table
  to:
    parquet_folder:
      url: "file://{{ context.project_root }}/delivered/$key"

  # append: every change. upsert: the table by its key, into a destination that can update rows.
  mode: append

  # Deliver all the time, with a transaction every interval. Without these, Materialize delivers what is there.
  # continuous: true
  # autostart: true
  # interval: 1 minute

  # Give this the same value as in the other components, or declare it once, in defs/resources.py.
  checkpoints:
    url: "file://{{ context.project_root }}/checkpoints"
""")

_DELIVERY_PYTHON = Template("""\
import dagster as dg

from dagster_ckpt import DeliveryComponent
from dagster_ckpt.destinations import ParquetFolder


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> DeliveryComponent:
    folder = ParquetFolder(f"file://{context.project_root}/delivered/$key")
    return DeliveryComponent(stream=dg.AssetKey("my_stream"), to=folder, mode="append", name="$key")
""")


_SQL_YAML = Template("""\
type: $type

attributes:
  # The .sql files of this folder and of those below it. Each table that they create is an asset.
  path: .

  # For all tables; a table's TBLPROPERTIES override them. An epoch every interval, until you stop it:
  # mode: continuous
  # autostart: true

  # What queries read that is not declared in SQL: assets by their keys, sources by Python functions.
  # ins: {orders: shop/orders}
  # sources: {customers: .sources.customers}

  # Give these equal values in each component, or leave them out and declare them once, in defs/resources.py.
  checkpoints:
    url: "file://{{ context.project_root }}/checkpoints"
  spark:
    spark.master: local[2]
""")

_SQL_PYTHON = Template("""\
import dagster as dg

from dagster_ckpt import StreamingSqlComponent


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> StreamingSqlComponent:
    return StreamingSqlComponent(path=".")
""")

_SQL = Template("""\
-- A source for tries: Spark makes the rows of each batch. Files, for instance, are
--   CREATE TEMPORARY VIEW departures (carrier STRING, dep_delay DOUBLE)
--   USING parquet OPTIONS (path '/data/departures');
CREATE TEMPORARY VIEW ${key}_source USING `rate-micro-batch` OPTIONS (rowsPerBatch 100);

CREATE MATERIALIZED VIEW $key COMMENT 'How many rows have come of each key.'
AS SELECT value % 10 AS key, count(*) AS rows, max(value) AS largest FROM ${key}_source GROUP BY value % 10;
""")


class StreamingComponentScaffolder(dg.Scaffolder):
    """Writes `defs.yaml`, or `component.py` for `--format python`. The folder's name becomes the asset's key."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        _write(request, _YAML, _PYTHON)


class DeliveryComponentScaffolder(dg.Scaffolder):
    """The same for a delivery. The folder's name becomes the asset's name."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        _write(request, _DELIVERY_YAML, _DELIVERY_PYTHON)


class StreamingSqlComponentScaffolder(dg.Scaffolder):
    """Writes a file of SQL too. The folder's name becomes the name of its table."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        _write(request, _SQL_YAML, _SQL_PYTHON)
        if not request.append:
            key = _key(request)
            (request.target_path / f"{key}.sql").write_text(_SQL.substitute(key=key))


def _key(request: dg.ScaffoldRequest) -> str:
    return (request.target_path.parent if request.append else request.target_path).name


def _write(request: dg.ScaffoldRequest, yaml: Template, python: Template) -> None:
    key = _key(request)
    if request.scaffold_format == "python":
        (request.target_path / "component.py").write_text(python.substitute(key=key))
        return
    text = yaml.substitute(type=request.type_name, key=key)
    if request.append:
        with Path(request.target_path).open("a") as file:
            file.write(f"---\n{text}")
    else:
        (request.target_path / "defs.yaml").write_text(text)
