"""The public names, written out: whoever removes or renames one changes this page too, and the changelog."""

import inspect
from importlib import import_module
from types import ModuleType

import pytest

import dagster_ckpt

MODULES = {
    "dagster_ckpt": """
        CheckpointCoordinator CheckpointCoordinatorResource CheckpointDeclinedError CheckpointError
        CheckpointStore CheckpointTimeoutError CoordinatorOptions CorruptStateError DeliveryComponent
        EpochIOManager FencedError IncompatibleStateError InvalidPipelineError KeyedState ListState
        LsmStateBackendResource OutsideCodeError ProcessContext ProcessFunction Recovery Snapshot SparkReader
        StoreUnavailableError Stream StreamHistory StreamingComponent StreamingSqlComponent ValueState agg
        build_recovery_sensor build_streaming_definitions changes_from deliver epoch_checks explain hopping
        late_rows over register_spark_reader session source streaming_asset streaming_sql tumbling
    """,
    "dagster_ckpt.destinations": """
        DeltaLake Iceberg Kafka ParquetFolder Postgres
    """,
    "dagster_ckpt.testing": """
        ProcessKit run_batches
    """,
    "dagster_ckpt.operators.agg": """
        approx_count_distinct approx_quantile avg avg_distinct bit_and bit_or bit_xor bool_and bool_or collect
        collect_list collect_set corr count count_distinct count_if covar_pop covar_samp first kurtosis last max
        median min mode percentile percentile_disc regr_intercept regr_r2 regr_slope skewness stddev stddev_pop
        sum sum_distinct user_defined var_pop variance
    """,
    "dagster_ckpt.operators.over": """
        avg count cume_dist dense_rank first_value lag last_value lead max min nth_value ntile percent_rank rank
        row_number session_start sum
    """,
}
METHODS = {
    "ProcessFunction": """
        on_rows on_watermark output state timers_within
    """,
    "CheckpointStore": """
        rollback savepoint snapshot stream streams url
    """,
    "StreamHistory": """
        changes epochs exists get info late_rows latest name read
    """,
    "Snapshot": """
        info read streams
    """,
    "SparkReader": """
        changes read
    """,
    "Stream": """
        aggregate deduplicate distinct except_all instant_join intersect intersect_all interval_join join key_by
        over process select subtract to_df top transform union where window window_join with_column with_columns
        with_watermark
    """,
}


def names_of(module: ModuleType) -> list[str]:
    """What the module offers by `__all__`, or else the functions written in it."""
    offered: list[str] | None = getattr(module, "__all__", None)
    if offered is not None:
        return sorted(offered)
    functions = inspect.getmembers(module, inspect.isfunction)
    own = (module.__name__, "dagster_ckpt.operators.aggregates.functions")  # `agg` offers what its families write
    return [name for name, each in functions if each.__module__.startswith(own) and not name.startswith("_")]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_offers_these_names_and_no_others(module: str) -> None:
    assert names_of(import_module(module)) == MODULES[module].split()


@pytest.mark.parametrize("name", METHODS)
def test_a_class_has_these_public_methods(name: str) -> None:
    assert [each for each in METHODS[name].split() if not hasattr(getattr(dagster_ckpt, name), each)] == []
