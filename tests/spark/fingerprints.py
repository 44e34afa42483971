"""The fingerprint of a stream as manifests have it, and the numbers that Spark gives in another process."""

import json
import os
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from dagster_ckpt.protocol.manifest.codec import PIPELINE
from dagster_ckpt.runtime.declared.pipeline import build_dataflow
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.spark.jvm import java_class, java_session

_CATALYST = "org.apache.spark.sql.catalyst"
_MANY, _FAR = 1_000, 100_000
PLANS_ALONE = os.environ.get("DAGSTER_CKPT_TEST_PLANS") == "1"
"""Whether long suites plan each query twice, and run none (`make test-plans`)."""


def fingerprint(stream: Stream) -> str:
    """The pipeline of a manifest, as JSON, but for what the sources are."""
    stream = stream.with_mirror()
    return json.dumps(PIPELINE.encode(build_dataflow("asset", stream, [()] * len(stream.sources)).pipeline))


def plan_twice(session: SparkSession, make: Callable[[], Stream]) -> Stream:
    """The stream that `make` makes. With other numbers and seeds of Spark's it has had the same fingerprint."""
    first = fingerprint(make())
    plan_something_else(session)
    again = make()
    assert fingerprint(again) == first
    return again


def plan_something_else(session: SparkSession) -> None:
    """Let Spark's next numbers have another number of digits, all but the first two, as long as that is near."""
    numbers = java_class(session, f"{_CATALYST}.expressions.NamedExpression")
    schema = StructType([StructField(f"c{place}", LongType()) for place in range(_MANY)])
    columns = java_session(session).parseDataType(schema.json())
    reached = int(numbers.newExprId().id())
    left = 10 ** len(str(reached + 2)) - 2 - reached
    if left > _FAR:
        left = _MANY
    for _ in range(left // _MANY):
        java_class(session, f"{_CATALYST}.types.DataTypeUtils").toAttributes(columns)
    for _ in range(left % _MANY):
        numbers.newExprId()
