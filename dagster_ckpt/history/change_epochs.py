"""The manifests with the changes after an epoch, without epochs that a rollback abandoned."""

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Nonce
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage_epochs, ranges
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition, trouble
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog


def epochs_after(
    chain: ManifestChain, newest: Manifest, after: int, until: int | None, after_nonce: str | None = None
) -> list[Manifest]:
    """The manifests that committed the epochs `(after, until]` (None: the current one), oldest first.

    `after_nonce` is that of the epoch `after`, where it is known: then a stream that was restored from a backup, and
    has another epoch of that number or none, is refused too.

    Raises `InvalidPipelineError` where one of the two is no epoch that the current one builds on, or some of them are
    no longer kept: it lists those that are.
    """
    until = newest.epoch if until is None else until
    at = UpstreamPosition(newest.uuid, Epoch(after), nonce=None if after_nonce is None else Nonce(after_nonce))
    if trouble(newest, at) is Trouble.DIVERGED and at.nonce is not None:
        raise _restored_error(at, UpstreamPosition.after(newest), newest)
    for epoch in (after, until):
        if epoch > newest.epoch or epoch < EMPTY or is_abandoned(newest, epoch):
            raise InvalidPipelineError(
                f"{_why_not(newest, epoch)}: choose one of those that the current epoch builds on. epoch={epoch}, "
                f"{_there(newest)}"
            )
    if until < after:
        raise InvalidPipelineError(f"`until` is an epoch before `after`. {after=}, {until=}, {_there(newest)}")
    try:
        return UpstreamLog(chain, newest.stream).epochs_after(newest, at, until=Epoch(until))
    except NothingFollowsError as error:
        if error.instead is not None:
            raise _restored_error(at, error.instead, newest) from None
        begins = chain.find(FIRST) if after == EMPTY else None
        if begins is not None and begins.kind is ManifestKind.FORK and begins.epoch != EMPTY:
            raise InvalidPipelineError(
                f"what a fork begins with is in no change log: read its epoch {begins.epoch}, and the changes after "
                f"that. {after=}, {until=}, {_there(newest)}"
            ) from None
        raise _no_longer_kept(newest, after, until) from None


def _no_longer_kept(newest: Manifest, after: int, until: int) -> InvalidPipelineError:
    return InvalidPipelineError(
        "the changes after this epoch are no longer kept: choose a later one, and keep more with `retained` in "
        f"future. {after=}, {until=}, {_there(newest)}"
    )


def _restored_error(at: UpstreamPosition, there: UpstreamPosition, newest: Manifest) -> InvalidPipelineError:
    return InvalidPipelineError(
        "the stream does not have this epoch: its folder was restored from a backup since. Read its table again, and "
        f"the changes after that. after={at.text}, there={there.text}, {_there(newest)}"
    )


def _why_not(newest: Manifest, epoch: int) -> str:
    if is_abandoned(newest, epoch):
        return "a change of the steps or a rollback left this epoch behind, so its changes are none of the stream's"
    return "there is no such epoch yet" if epoch > newest.epoch else "there is no such epoch"


def _there(newest: Manifest) -> str:
    return f"current={newest.epoch}, retained={ranges(lineage_epochs(newest)) or 'none'}, stream={newest.stream!r}"
