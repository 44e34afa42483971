import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.upstreams.downstream import check_spark


@pytest.mark.parametrize("version", ["4.0.2", "4.1.4"])
def test_a_spark_without_limits_for_python_sources_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(InvalidPipelineError, match=rf"needs Spark 4\.2.*install pyspark>=4\.2.*pyspark={version}"):
        check_spark(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0.dev1"])
def test_newer_ones_are_accepted(version: str) -> None:
    check_spark(version)
