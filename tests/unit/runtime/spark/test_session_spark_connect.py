from typing import Any

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.session import open_session


def test_a_connect_session_is_refused_by_name() -> None:
    session: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidPipelineError, match=r"Spark Connect cannot run one\. session=pyspark\.sql\.connect"):
        open_session(session)
