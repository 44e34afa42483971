import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.plans import direct_call
from dagster_ckpt.runtime.spark.session import NEEDED


def test_the_builder_of_a_session_has_the_settings_too_because_a_jvm_that_had_a_context_reads_no_announcement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: dict[str, object] = {}
    monkeypatch.setattr(direct_call, "announce_settings", lambda _environ: None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: said.update(builder._options))
    direct_call.local_session()
    assert NEEDED.items() <= said.items()
