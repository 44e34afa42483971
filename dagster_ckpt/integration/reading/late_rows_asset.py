"""The late rows of a stream, as a separate asset."""

from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.ids import Epoch
from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY
from dagster_ckpt.integration.declared.streaming_function import require_streaming
from dagster_ckpt.operators.shared.late_rows import stored_late_tables
from dagster_ckpt.protocol.manifest.manifest import Manifest

_SUFFIX = "_late_rows"

_EVENTS_MAX = 100
"""How many of the newest events are searched for one with a total: those that people report have none."""


def late_rows(asset: dg.AssetsDefinition, of_input: int = 0) -> dg.AssetSpec:
    """The late rows of a stream whose step has `late="keep"`, as an asset for `dg.Definitions`.

        defs = dg.Definitions.merge(
            build_streaming_definitions([flights_per_hour]), dg.Definitions(assets=[late_rows(flights_per_hour)])
        )

    You do not materialize it: the stream's Dagster runs do, whenever rows came too late. An event has the rows since
    the last one (`late_rows`) and since the stream began (`late_rows_total`). The asset's key is the stream's with the
    suffix `_late_rows`, and any ordinary asset loads it by that name, as a stream's table. `of_input` (from 0) selects
    the side of a join: for the second one the suffix is `_late_rows_1`. With several steps, the inputs that read
    sources come first, in the order of the steps, then those that read an earlier step.

    Raises `InvalidPipelineError` for an asset that was not made by @streaming_asset.
    """
    require_streaming(asset)
    spec = asset.get_asset_spec(asset.key)
    return dg.AssetSpec(
        key=late_key(asset.key, of_input),
        deps=[asset.key],
        description=f"The rows that came too late for {asset.key.to_user_string()}.",
        group_name=spec.group_name,
        kinds=set(spec.kinds),
    ).with_io_manager_key(IO_MANAGER_KEY)


def late_key(stream: dg.AssetKey, number: int) -> dg.AssetKey:
    """The key of the asset with the late rows of one of a stream's inputs."""
    *prefix, name = stream.path
    return dg.AssetKey([*prefix, f"{name}{_SUFFIX}{f'_{number}' if number else ''}"])


def stream_of_late_key(key: dg.AssetKey) -> tuple[dg.AssetKey, int] | None:
    """The stream and input whose late rows an asset of this key has; None for any other key."""
    *prefix, name = key.path
    stream, suffix, rest = name.rpartition(_SUFFIX)
    number = int(rest.removeprefix("_")) if rest.startswith("_") and rest[1:].isdecimal() else 0
    if not suffix or not stream or late_key(dg.AssetKey([*prefix, stream]), number) != key:
        return None
    return dg.AssetKey([*prefix, stream]), number


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of one input: their asset, and how many a stream has kept by an epoch since it began."""

    key: dg.AssetKey
    epoch: Epoch
    total: int
    state_bytes: int

    @classmethod
    def of_stream(cls, stream: dg.AssetKey, manifest: Manifest) -> "list[LateRows]":
        """Those of each input whose late rows the stream keeps."""
        return [
            cls(
                late_key(stream, number),
                manifest.epoch,
                manifest.late_rows_of(number),
                sum({run.name: run.bytes for shard in manifest.runs[table] for run in shard}.values()),
            )
            for number, table in enumerate(stored_late_tables(manifest.pipeline))
            if table is not None
        ]

    def materialization(self, reported: int) -> dg.AssetMaterialization:
        """The event: how many are new since the event that had `reported` of them, and how many there are."""
        figures = {
            "epoch": self.epoch,
            "late_rows": self.total - reported,
            _TOTAL: self.total,
            "dagster/row_count": self.total,
            "state_bytes": self.state_bytes,
        }
        metadata = {label: dg.MetadataValue.int(number) for label, number in figures.items()}
        return dg.AssetMaterialization(asset_key=self.key, metadata=metadata)


_TOTAL = "late_rows_total"


def late_rows_reported(instance: dg.DagsterInstance, late: LateRows) -> int:
    """The total of the newest event of these late rows that Dagster has stored; 0 without one."""
    # Not `get_latest_materialization_event`, for the reason in `event_totals.read_totals`.
    newest = instance.fetch_materializations(late.key, limit=1).records
    if not newest:
        return 0
    found = _total(newest[0].asset_materialization)
    if found is not None:
        return found
    records = instance.fetch_materializations(late.key, limit=_EVENTS_MAX).records
    totals = (_total(each.asset_materialization) for each in records)
    return next((total for total in totals if total is not None), 0)


def _total(event: dg.AssetMaterialization | None) -> int | None:
    value = None if event is None or _TOTAL not in event.metadata else event.metadata[_TOTAL].value
    return value if type(value) is int else None
