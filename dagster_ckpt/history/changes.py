"""Which manifests have the changes behind an epoch. What a rollback left behind is none of them."""

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.protocol.lineage import is_abandoned, lineage_epochs, ranges
from dagster_ckpt.protocol.manifest import Manifest, ManifestKind
from dagster_ckpt.protocol.upstream import may_follow
from dagster_ckpt.storage.chain import ManifestChain


def epochs_behind(chain: ManifestChain, newest: Manifest, after: int, until: int | None) -> list[Manifest]:
    """The manifests that committed the epochs `(after, until]` (None: the current one), oldest first.

    The manifest of `after` has to be there too: otherwise numbers behind it may have been freed, and a sleeper's
    manifest may lie on the next one for a while.

    Raises `InvalidPipelineError` where one of the two is no epoch that the current one builds on, or some of them are
    no longer kept: it lists those that are.
    """
    until = newest.epoch if until is None else until
    for epoch in (after, until):
        if epoch > newest.epoch or epoch < EMPTY or is_abandoned(newest, epoch):
            raise InvalidPipelineError(
                f"{_why_not(newest, epoch)}: choose one of those that the current epoch builds on. epoch={epoch}, "
                f"{_there(newest)}"
            )
    if until < after:
        raise InvalidPipelineError(f"`until` is an epoch before `after`. {after=}, {until=}, {_there(newest)}")
    found = []
    for version in may_follow(newest, Epoch(after)):
        if version > until:
            break
        manifest = chain.find(version)
        if manifest is None or manifest.uuid != newest.uuid:
            raise _no_longer_kept(newest, after, until)
        if manifest.kind is ManifestKind.FORK and manifest.epoch != EMPTY:
            raise InvalidPipelineError(
                f"what a fork begins with is in no change log: read its epoch {manifest.epoch}, and the changes behind "
                f"that. {after=}, {until=}, {_there(newest)}"
            )
        if manifest.kind is ManifestKind.EPOCH:
            found.append(manifest)
    # Numbers are freed from below. Behind epoch 0 the first is 1, where a sleeper's would be of another stream.
    if after > EMPTY and found and chain.find(Version(after)) is None:
        raise _no_longer_kept(newest, after, until)
    return found


def _no_longer_kept(newest: Manifest, after: int, until: int) -> InvalidPipelineError:
    return InvalidPipelineError(
        "the changes behind this epoch are no longer kept: choose a later one, and keep more with `retained` in "
        f"future. {after=}, {until=}, {_there(newest)}"
    )


def _why_not(newest: Manifest, epoch: int) -> str:
    if is_abandoned(newest, epoch):
        return "a rollback left this epoch behind, so its changes are none of the stream's"
    return "there is no such epoch yet" if epoch > newest.epoch else "there is no such epoch"


def _there(newest: Manifest) -> str:
    return f"current={newest.epoch}, retained={ranges(lineage_epochs(newest)) or 'none'}, stream={newest.stream!r}"
