"""Streams whose keys Dagster spells alike: in one code location their ops must have different names."""

from collections.abc import Sequence

import dagster as dg

from dagster_ckpt.integration.dagster_names import distinct_names
from dagster_ckpt.integration.declared.stream_jobs import require_streaming


def with_distinct_ops(assets: Sequence[dg.AssetsDefinition]) -> list[dg.AssetsDefinition]:
    """The assets, with unique op names: the keys `a__b` and `["a", "b"]` share one.

    Raises `InvalidPipelineError` for an asset that is no stream.
    """
    for asset in assets:
        require_streaming(asset)
    names = distinct_names({asset.key: asset.op.name for asset in assets})
    return [_with_op(asset, names[asset.key]) for asset in assets]


def _with_op(asset: dg.AssetsDefinition, name: str) -> dg.AssetsDefinition:
    if asset.op.name == name:
        return asset
    op = asset.op.with_replaced_properties(name=name)
    renamed: dg.AssetsDefinition = dg.AssetsDefinition.dagster_internal_init(
        **{**asset.get_attributes_dict(), "node_def": op}
    )
    return renamed
