"""The late rows of a stream, as a separate asset."""

from collections.abc import Iterator

import dagster as dg

from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY
from dagster_ckpt.integration.declared.stream_jobs import require_streaming
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.protocol.manifest.manifest import Manifest

_SUFFIX = "_late_rows"


def late_rows(asset: dg.AssetsDefinition, of_input: int = 0) -> dg.AssetSpec:
    """The late rows of a stream whose step has `late="keep"`, as an asset for `dg.Definitions`.

    You do not materialize it: the stream's Dagster runs do, whenever rows came too late. Its key is the stream's with
    the suffix `_late_rows`, and any ordinary asset loads it by that name, like a stream's table. `of_input` (from 0)
    selects the side of a join: for the second one the suffix is `_late_rows_1`.

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


def late_materializations(key: dg.AssetKey, manifest: Manifest, logged_rows: int) -> Iterator[dg.AssetMaterialization]:
    """The events of a stream's late rows, if it keeps them and has more than the `logged_rows` of earlier events."""
    total = manifest.statistics.total_late_rows
    kept = {spec.name for spec in manifest.pipeline.tables}
    if total == logged_rows:
        return
    for number in range(len(manifest.pipeline.inputs)):
        if late_table(number) in kept:
            runs = (run for shard in manifest.runs[late_table(number)] for run in shard)
            yield dg.AssetMaterialization(
                asset_key=late_key(key, number),
                metadata={
                    "epoch": dg.MetadataValue.int(manifest.epoch),
                    "late_rows": dg.MetadataValue.int(manifest.statistics.late_rows),
                    "total_late_rows": dg.MetadataValue.int(total),
                    "state_bytes": dg.MetadataValue.int(sum({run.path: run.bytes for run in runs}.values())),
                },
            )
