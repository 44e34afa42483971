"""The self-probe: does this store really create atomically? A store that lies would lose a user's data months later."""

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.names import probe_name
from dagster_ckpt.storage.object_store import ObjectStore
from dagster_ckpt.storage.patience import Patience, Tries

_proved: set[str] = set()
_PATIENCE = Patience(total_ms=10_000)


def prove_atomic_create(store: ObjectStore, clock: Clock) -> None:
    """Create one object twice and expect one winner; once per process and address.

    Raises `InvalidPipelineError` for a store that lies. A crash in the middle leaves one small object nobody looks at.
    """
    if store.url in _proved:
        return
    # Each try has a name of its own: after a lost reply nobody knows who won.
    first, second, kept = Tries(clock, _PATIENCE).until_answered(
        lambda: _two_creates(store, probe_name(clock.unique()))
    )
    if (first, second, kept) != (True, False, b"first"):
        raise InvalidPipelineError(
            f"this store does not create atomically (of two creates of one object the first must win): "
            f"keep the checkpoints elsewhere. store={store.url}, won={[first, second]}, kept={kept!r}"
        )
    _proved.add(store.url)


def _two_creates(store: ObjectStore, name: str) -> tuple[bool, bool, bytes]:
    """Which of two creates won, and what is there then."""
    try:
        first, second = store.put_if_absent(name, b"first"), store.put_if_absent(name, b"second")
        return first, second, store.get(name)
    finally:
        store.delete(name)
