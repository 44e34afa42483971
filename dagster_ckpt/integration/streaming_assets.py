"""The asset that runs a step, as streams and deliveries have it: op, signature and checks.

Its definition is an ordinary one that has defaults for two of its resources.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY, is_plain, op_name_of
from dagster_ckpt.integration.declared.resources import LsmStateBackendResource
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction, attach, function_of_op, of_asset
from dagster_ckpt.integration.events import outdated_changes
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints
from dagster_ckpt.integration.recovery import live_check
from dagster_ckpt.integration.recovery.crash_loop_check import check_spec
from dagster_ckpt.integration.recovery.sensor_check import sensor_check_spec
from dagster_ckpt.integration.step.step import run_step

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
    wrapper, (file, line) = _code_place(function_of_op(asset.op)), _code_place(inspect.unwrap(streaming.function))
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


def _code_place(function: Callable[..., object]) -> tuple[str, int]:
    """The file and the line of a function's source, as `dg.with_source_code_references` finds them."""
    return str(Path(inspect.getsourcefile(function) or "").absolute()), inspect.getsourcelines(function)[1]


def step_asset(
    key: dg.AssetKey,
    streaming: StreamingFunction,
    arguments: Mapping[str, Any],
    out: Callable[[dg.AssetKey], dg.AssetOut],
    **of_op: Any,
) -> dg.AssetsDefinition:
    """The asset whose step runs `streaming`. `arguments` are the annotations of what its op is given, by name.

    `out` makes the asset's output from a key, `of_op` are further options of `dg.multi_asset`.
    """
    op_name = op_name_of(key)
    # Dagster makes the name of a check's output from its asset's key, and refuses some keys there. Such an asset is
    # made under the op's name, which Dagster accepts, and gets its key afterwards.
    made_as = key if is_plain(key) else dg.AssetKey(op_name)
    made: dg.AssetsDefinition = dg.multi_asset(
        name=op_name,
        outs={"result": out(made_as)},
        check_specs=[
            check_spec(made_as),
            live_check.check_spec(made_as),
            outdated_changes.check_spec(made_as),
            sensor_check_spec(made_as),
        ],
        **of_op,
    )(_compute(streaming, arguments))
    return StreamingAssetsDefinition.of(made.with_attributes(asset_key_replacements={made_as: key}))


def _compute(streaming: StreamingFunction, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """The op's function. Its signature is made here, because Dagster reads the arguments from it."""

    def compute(
        context: dg.AssetExecutionContext, config: dg.Config | None = None, **resources: object
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield run_step(context, streaming, config, resources)

    annotations: dict[str, Any] = {"context": dg.AssetExecutionContext, **arguments}
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, by_name, annotation=each) for name, each in annotations.items()]
    vars(compute)["__signature__"] = inspect.Signature(parameters)
    attach(compute, streaming)
    compute.__annotations__ = annotations
    compute.__name__ = compute.__qualname__ = getattr(streaming.function, "__name__", "compute")
    compute.__module__ = streaming.function.__module__
    return compute
