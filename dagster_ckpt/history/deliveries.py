"""What a delivery is not asked for: its rows are in a destination, and so is its position."""

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain


def check_has_rows(manifest: Manifest) -> None:
    """Raise `InvalidPipelineError` for the manifest of a delivery, which has no rows."""
    if manifest.pipeline.delivers:
        raise InvalidPipelineError(
            "this is a delivery, whose rows are in its destination: read them there, or the stream that it delivers. "
            f"{_names(manifest)}"
        )


def check_is_no_delivery(chain: ManifestChain, change: str) -> None:
    """Raise `InvalidPipelineError` if the stream is a delivery; `change` is what was asked of it: "rolled back"."""
    try:
        newest = chain.newest()
    except CorruptStateError:
        return  # what follows says so
    if newest is not None and newest.pipeline.delivers:
        raise InvalidPipelineError(
            f"a delivery cannot be {change}, since its position is in its destination: do that with the stream, and "
            f"the delivery follows. {_names(newest)}"
        )


def _names(manifest: Manifest) -> str:
    of = manifest.pipeline.inputs[0].sources[0].address
    return f"delivery={manifest.stream}, stream={of}, destination={manifest.pipeline.parameters.get('address')}"
