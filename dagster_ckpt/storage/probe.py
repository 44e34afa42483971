"""The self-probe: does this store really create atomically? A store that lies would lose a user's data months later."""

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.names import probe_name
from dagster_ckpt.storage.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.patience import Patience, Tries

_proved: set[str] = set()
_ASKED_AGAIN_MAX = 4
"""Who sleeps in between for longer than a collector's grace period finds its object gone: so asked some more times."""
_PATIENCE = Patience(total_ms=10_000)
_Found = tuple[bool, bool, bytes | None]
"""Which of two creates of one object won, and what is there then."""
_HONEST: _Found = (True, False, b"first")


def prove_atomic_create(store: ObjectStore, clock: Clock) -> None:
    """Create one object twice and expect one winner; once per process and address.

    Raises `InvalidPipelineError` for a store that lies. A crash in the middle leaves one small object nobody looks at.
    """
    if store.url in _proved:
        return
    found = _two_creates(store, clock)
    for _ in range(_ASKED_AGAIN_MAX):
        if found != _HONEST:
            found = _two_creates(store, clock)
    if found != _HONEST:
        raise InvalidPipelineError(
            f"this store does not create atomically (of two creates of one object the first must win): "
            f"keep the checkpoints elsewhere. store={store.url}, won={list(found[:2])}, kept={found[2]!r}"
        )
    _proved.add(store.url)


def _two_creates(store: ObjectStore, clock: Clock) -> _Found:
    # Each try has a name of its own: after a lost reply nobody knows who won.
    return Tries(clock, _PATIENCE).until_answered(lambda: _created_twice(store, probe_name(clock.unique())))


def _created_twice(store: ObjectStore, name: str) -> _Found:
    try:
        first, second = store.put_if_absent(name, b"first"), store.put_if_absent(name, b"second")
        return first, second, _kept(store, name)
    finally:
        store.delete(name)


def _kept(store: ObjectStore, name: str) -> bytes | None:
    try:
        return store.get(name)
    except ObjectMissingError:
        return None
