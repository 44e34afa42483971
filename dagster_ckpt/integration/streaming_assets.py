"""A streaming asset's definition: an ordinary one that has defaults for two of its resources."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY
from dagster_ckpt.integration.declared.resources import LsmStateBackendResource
from dagster_ckpt.integration.declared.streaming_function import function_of_op, of_asset
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints

DEFAULT_STATE = LsmStateBackendResource()
_DEFAULTS: Mapping[str, dg.ResourceDefinition] = {
    # One object each: Dagster accepts two assets with a resource of one key only if it is the same object.
    "state": DEFAULT_STATE.get_resource_definition(),
    IO_MANAGER_KEY: epochs_of_checkpoints,
}


_CODE_REFERENCES = "dagster/code_references"
_URI = "dagster/uri"


class StreamingAssetsDefinition(dg.AssetsDefinition):
    """Has defaults for `state` and `epochs`, for a location without these resources.

    `dg.Definitions` and `dg.materialize` pass the location's resources to `with_resources`. A default that the asset
    had earlier would conflict with the location's resource.
    """

    _address: str | None = None
    """The address that `with_address` has set."""

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

    def with_address(self, uri: str) -> "StreamingAssetsDefinition":
        """The definition with the address of the stream's folder on its page, unless the user has given another one.

        It is this object and no copy, unless it was given another address before. A code location may have the asset
        in two places: as a name in one module, and in the definitions of another. Dagster joins the two only if they
        are one object.
        """
        shown = self.get_asset_spec().metadata.get(_URI)
        if shown is None:
            self._address = uri
            self._specs_by_key = {spec.key: _with_uri(spec, uri) for spec in self.specs}
        elif self._address not in {None, uri} and shown == self._address:
            attributes = {**self.get_attributes_dict(), "specs": [_with_uri(spec, uri) for spec in self.specs]}
            return self.dagster_internal_init(**attributes)
        return self

    def map_asset_specs(self, fn: Callable[[dg.AssetSpec], dg.AssetSpec]) -> dg.AssetsDefinition:
        """As Dagster's, except that references to the op's function become references to the user's.

        `dg.with_source_code_references` adds the op's function, which for a stream is a wrapper of ours.
        """
        return super().map_asset_specs(lambda spec: _at_users_code(fn(spec), self))

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> "StreamingAssetsDefinition":
        known = {*resource_defs, *self.resource_defs}
        missing = {key: default for key, default in _DEFAULTS.items() if key not in known}
        return StreamingAssetsDefinition.of(super().with_resources({**resource_defs, **missing}))


def _with_uri(spec: dg.AssetSpec, uri: str) -> dg.AssetSpec:
    return spec.replace_attributes(metadata={**spec.metadata, _URI: uri})


def _at_users_code(spec: dg.AssetSpec, asset: dg.AssetsDefinition) -> dg.AssetSpec:
    streaming, given = of_asset(asset), spec.metadata.get(_CODE_REFERENCES)
    if streaming is None or not isinstance(given, dg.CodeReferencesMetadataValue):
        return spec
    wrapper, (file, line) = _place_of(function_of_op(asset.op)), _place_of(inspect.unwrap(streaming.function))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # for the user, who has called a beta function
        found = [
            dg.LocalFileCodeReference(file_path=file, line_number=line, label=each.label)
            if isinstance(each, dg.LocalFileCodeReference) and (each.file_path, each.line_number) == wrapper
            else each
            for each in given.code_references
        ]
        shown = dg.CodeReferencesMetadataValue(code_references=found)
    return spec.merge_attributes(metadata={_CODE_REFERENCES: shown})


def _place_of(function: Callable[..., object]) -> tuple[str, int]:
    """The file and the line of a function's source, as `dg.with_source_code_references` finds them."""
    return str(Path(inspect.getsourcefile(function) or "").absolute()), inspect.getsourcelines(function)[1]
