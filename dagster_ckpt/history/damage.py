"""When an object is damaged: which epoch does without it. Only asked after an error, so it may list and look around."""

from collections.abc import Iterator

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history.table import files_of
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.lineage import lineage
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.protocol.names import MANIFESTS, parse_manifest_name
from dagster_ckpt.storage.chain import ManifestChain


def epoch_without(chain: ManifestChain, newest: Manifest, error: CorruptStateError) -> Epoch | None:
    """The newest retained epoch whose table needs no object that the error names; None where all do."""
    for retained in reversed(lineage(newest)):
        try:
            needed = list(_needed(chain, chain.read(retained.version)))
        except CorruptStateError:
            continue  # its own manifest or list is damaged
        # Each name is looked for in the message, which ends in it: nothing is parsed.
        if not any(name in str(error) for name in needed):
            return retained.epoch
    return None


def newest_readable(chain: ManifestChain) -> Manifest | None:
    """The newest manifest that can be read, where the newest one cannot. Found by listing: good enough for advice."""
    versions = (parse_manifest_name(name) for name in chain.store.list(MANIFESTS))
    for version in sorted((version for version in versions if version is not None), reverse=True):
        try:
            return chain.read(version)
        except CorruptStateError:
            continue
    return None


def _needed(chain: ManifestChain, manifest: Manifest) -> Iterator[str]:
    yield from (run.path for shards in manifest.runs.values() for runs in shards for run in runs)
    yield from (index.path for index in manifest.files.index)
    yield from (file.path for file in files_of(chain.store, chain.clock, manifest))
