"""A streaming asset's definition: an ordinary one that has defaults for two of its resources."""

import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY
from dagster_ckpt.integration.declared.resources import LsmStateBackendResource
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints

DEFAULT_STATE = LsmStateBackendResource()
_DEFAULTS: Mapping[str, dg.ResourceDefinition] = {
    # One object each: Dagster accepts two assets with a resource of one key only if it is the same object.
    "state": DEFAULT_STATE.get_resource_definition(),
    IO_MANAGER_KEY: epochs_of_checkpoints,
}


class StreamingAssetsDefinition(dg.AssetsDefinition):
    """Has defaults for `state` and `epochs`, for a location without these resources.

    `dg.Definitions` and `dg.materialize` pass the location's resources to `with_resources`. A default that the asset
    had earlier would conflict with the location's resource.
    """

    @classmethod
    def of(cls, assets: dg.AssetsDefinition) -> "StreamingAssetsDefinition":
        """The same definition with the defaults."""
        with warnings.catch_warnings():
            # Dagster includes its beta attributes, and warns any caller who passes them on.
            warnings.simplefilter("ignore", dg.BetaWarning)
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return cls(**assets.get_attributes_dict())

    @staticmethod
    def dagster_internal_init(**attributes: Any) -> "StreamingAssetsDefinition":
        """How Dagster makes a copy, with a prefixed key for instance: the copy has the defaults too."""
        return StreamingAssetsDefinition.of(dg.AssetsDefinition.dagster_internal_init(**attributes))

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> "StreamingAssetsDefinition":
        known = {*resource_defs, *self.resource_defs}
        missing = {key: default for key, default in _DEFAULTS.items() if key not in known}
        return StreamingAssetsDefinition.of(super().with_resources({**resource_defs, **missing}))
