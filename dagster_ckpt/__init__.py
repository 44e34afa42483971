"""Exactly-once, stateful PySpark streams as Dagster assets, which recover by themselves.

Importing this package loads neither Dagster nor Spark: Spark's executors import `dagster_ckpt.runtime.task`, and
Dagster's import takes seconds. Each public name is loaded when it is first used.

Layers: each imports only from those below it
    testing/      tools for the tests of users
    cli/          the command `dagster-ckpt`
    integration/  Dagster: the asset decorator, resources, the recovery sensor, the IO manager
    destinations/ where a stream can be delivered to
    delivery/     a stream's table or changes, exactly once into a destination
    runtime/      Spark: the driver's epochs, the executors' tasks, sources
    history/      the past of a stream: read, verified, rolled back, forked, resharded
    tables/       the rows of a stream's table and its changes
    operators/    stateful operators over Arrow tables (pure)
    state/        the state engine: tables within an epoch, their runs, merges, memory
    storage/      object stores, the manifest chain, leases, the garbage collector
    lsm/          sorted runs: look-ups, merges, what to merge next (pure)
    protocol/     the manifest and the rules of exactly-once (pure)

Beneath all layers
    clock         the one file that reads the clock, and that draws chance and ids
    hash_range    ranges of key hashes: cover, intersect, subtract, split
    quantities    durations and sizes as users write them
    errors        every error that a user can see
    nullability   what a nested type allows to be null
    split_totals        an integer total in one column of state, or in two
    widening      which type a column may get while older rows stay readable
    ids           kinds of numbers: epoch, version, term, shard
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster_ckpt.errors import CheckpointDeclinedError as CheckpointDeclinedError
    from dagster_ckpt.errors import CheckpointError as CheckpointError
    from dagster_ckpt.errors import CheckpointTimeoutError as CheckpointTimeoutError
    from dagster_ckpt.errors import CorruptStateError as CorruptStateError
    from dagster_ckpt.errors import FencedError as FencedError
    from dagster_ckpt.errors import IncompatibleStateError as IncompatibleStateError
    from dagster_ckpt.errors import InvalidPipelineError as InvalidPipelineError
    from dagster_ckpt.errors import OutsideCodeError as OutsideCodeError
    from dagster_ckpt.errors import StoreUnavailableError as StoreUnavailableError
    from dagster_ckpt.history import CheckpointStore as CheckpointStore
    from dagster_ckpt.history import Snapshot as Snapshot
    from dagster_ckpt.history import StreamHistory as StreamHistory
    from dagster_ckpt.integration.asset import streaming_asset as streaming_asset
    from dagster_ckpt.integration.component.delivery_component import DeliveryComponent as DeliveryComponent
    from dagster_ckpt.integration.component.streaming_component import StreamingComponent as StreamingComponent
    from dagster_ckpt.integration.component.streaming_sql_component import (
        StreamingSqlComponent as StreamingSqlComponent,
    )
    from dagster_ckpt.integration.declared.recovery_policy import Recovery as Recovery
    from dagster_ckpt.integration.declared.resources import (
        CheckpointCoordinatorResource as CheckpointCoordinatorResource,
    )
    from dagster_ckpt.integration.declared.resources import LsmStateBackendResource as LsmStateBackendResource
    from dagster_ckpt.integration.definitions import build_streaming_definitions as build_streaming_definitions
    from dagster_ckpt.integration.deliver import deliver as deliver
    from dagster_ckpt.integration.epoch_checks import epoch_checks as epoch_checks
    from dagster_ckpt.integration.explain import explain as explain
    from dagster_ckpt.integration.reading.io_manager import EpochIOManager as EpochIOManager
    from dagster_ckpt.integration.reading.late_rows_asset import late_rows as late_rows
    from dagster_ckpt.integration.recovery.sensor import build_recovery_sensor as build_recovery_sensor
    from dagster_ckpt.integration.sql.streaming_sql import streaming_sql as streaming_sql
    from dagster_ckpt.operators import agg as agg
    from dagster_ckpt.operators import over as over
    from dagster_ckpt.operators.process import KeyedState as KeyedState
    from dagster_ckpt.operators.process import ListState as ListState
    from dagster_ckpt.operators.process import ProcessContext as ProcessContext
    from dagster_ckpt.operators.process import ProcessFunction as ProcessFunction
    from dagster_ckpt.operators.process import ValueState as ValueState
    from dagster_ckpt.operators.shared.window_kinds import hopping as hopping
    from dagster_ckpt.operators.shared.window_kinds import session as session
    from dagster_ckpt.operators.shared.window_kinds import tumbling as tumbling
    from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator as CheckpointCoordinator
    from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CoordinatorOptions as CoordinatorOptions
    from dagster_ckpt.runtime.declared.changes_from import changes_from as changes_from
    from dagster_ckpt.runtime.declared.sources import source as source
    from dagster_ckpt.runtime.declared.stream import Stream as Stream
    from dagster_ckpt.runtime.spark.spark_reader import SparkReader as SparkReader
    from dagster_ckpt.runtime.spark.spark_reader import register_spark_reader as register_spark_reader

_HOMES = {
    "CheckpointCoordinator": "dagster_ckpt.protocol.coordinator.checkpoint_coordinator",
    "CheckpointCoordinatorResource": "dagster_ckpt.integration.declared.resources",
    "CheckpointDeclinedError": "dagster_ckpt.errors",
    "CheckpointError": "dagster_ckpt.errors",
    "CheckpointStore": "dagster_ckpt.history",
    "CheckpointTimeoutError": "dagster_ckpt.errors",
    "CoordinatorOptions": "dagster_ckpt.protocol.coordinator.checkpoint_coordinator",
    "CorruptStateError": "dagster_ckpt.errors",
    "DeliveryComponent": "dagster_ckpt.integration.component.delivery_component",
    "EpochIOManager": "dagster_ckpt.integration.reading.io_manager",
    "FencedError": "dagster_ckpt.errors",
    "IncompatibleStateError": "dagster_ckpt.errors",
    "InvalidPipelineError": "dagster_ckpt.errors",
    "OutsideCodeError": "dagster_ckpt.errors",
    "KeyedState": "dagster_ckpt.operators.process",
    "ListState": "dagster_ckpt.operators.process",
    "LsmStateBackendResource": "dagster_ckpt.integration.declared.resources",
    "ProcessContext": "dagster_ckpt.operators.process",
    "ProcessFunction": "dagster_ckpt.operators.process",
    "Recovery": "dagster_ckpt.integration.declared.recovery_policy",
    "Snapshot": "dagster_ckpt.history",
    "SparkReader": "dagster_ckpt.runtime.spark.spark_reader",
    "StoreUnavailableError": "dagster_ckpt.errors",
    "Stream": "dagster_ckpt.runtime.declared.stream",
    "StreamHistory": "dagster_ckpt.history",
    "StreamingComponent": "dagster_ckpt.integration.component.streaming_component",
    "StreamingSqlComponent": "dagster_ckpt.integration.component.streaming_sql_component",
    "ValueState": "dagster_ckpt.operators.process",
    "agg": "dagster_ckpt.operators",
    "build_recovery_sensor": "dagster_ckpt.integration.recovery.sensor",
    "build_streaming_definitions": "dagster_ckpt.integration.definitions",
    "changes_from": "dagster_ckpt.runtime.declared.changes_from",
    "deliver": "dagster_ckpt.integration.deliver",
    "epoch_checks": "dagster_ckpt.integration.epoch_checks",
    "explain": "dagster_ckpt.integration.explain",
    "hopping": "dagster_ckpt.operators.shared.window_kinds",
    "late_rows": "dagster_ckpt.integration.reading.late_rows_asset",
    "over": "dagster_ckpt.operators",
    "register_spark_reader": "dagster_ckpt.runtime.spark.spark_reader",
    "session": "dagster_ckpt.operators.shared.window_kinds",
    "source": "dagster_ckpt.runtime.declared.sources",
    "streaming_asset": "dagster_ckpt.integration.asset",
    "streaming_sql": "dagster_ckpt.integration.sql.streaming_sql",
    "tumbling": "dagster_ckpt.operators.shared.window_kinds",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a list; the linter cannot see it)


if not TYPE_CHECKING:
    # A type checker that saw this would take any name for a public one.
    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'dagster_ckpt' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
