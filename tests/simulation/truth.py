"""The objects of the simulated store as they truly are, and what each change of them tells the oracle."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Protocol

from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from tests.simulation.scheduler import Strand


class Witness(Protocol):
    """Whoever wants to know of every change, at once. `who` asked for it, perhaps long ago."""

    def created(self, name: str, data: bytes, who: Strand) -> None: ...

    def overwritten(self, name: str, who: Strand) -> None: ...

    def deleted(self, name: str, who: Strand) -> None:
        """Told before it happens."""
        ...

    def unanswered(self, name: str) -> None:
        """A create of it was refused, or its reply was lost."""
        ...


class Deaf:
    """The witness of a folder that people have removed: what is still under way to it changes nothing."""

    def created(self, name: str, data: bytes, who: Strand) -> None: ...

    def overwritten(self, name: str, who: Strand) -> None: ...

    def deleted(self, name: str, who: Strand) -> None: ...

    def unanswered(self, name: str) -> None: ...


class Truth:
    """The honest store. `now_ms` is its own clock."""

    def __init__(self, now_ms: Callable[[], int], remembered_ms: int) -> None:
        self.objects: dict[str, bytes] = {}
        self._folders: defaultdict[str, dict[str, None]] = defaultdict(dict)  # the same names, by their first part
        self.witness: Witness | None = None
        self._modified_ms: dict[str, int] = {}
        self._now_ms = now_ms
        self._remembered_ms = remembered_ms
        self._changes: deque[tuple[int, str, bool]] = deque()  # when, what, whether it was there before

    def put_if_absent(self, name: str, data: bytes, who: Strand) -> bool:
        if name in self.objects:
            return False
        self._write(name, data)
        self._told().created(name, data, who)
        return True

    def put(self, name: str, data: bytes, who: Strand) -> None:
        self._write(name, data)
        self._told().overwritten(name, who)

    def get(self, name: str) -> bytes:
        try:
            return self.objects[name]
        except KeyError:
            raise ObjectMissingError(name) from None

    def modified_ms(self, name: str) -> int:
        self.get(name)
        return self._modified_ms[name]

    def delete(self, name: str, who: Strand) -> None:
        if name not in self.objects:
            return
        self._told().deleted(name, who)
        self.remove(name)

    def remove(self, name: str) -> None:
        """A person takes the object away by hand: no promise holds for it any more."""
        if name in self.objects:
            self._changed(name)
            del self.objects[name]
            del self._folders[_first_part(name)][name]

    def fill(self, objects: Mapping[str, bytes]) -> None:
        """A person puts copies of these objects into the empty folder."""
        for name, data in objects.items():
            self._write(name, data)

    def names(self, prefix: str) -> list[str]:
        if not prefix:
            return list(self.objects)
        folder, _, inside = prefix.partition("/")
        names = self._folders[folder]
        below = f"{prefix}/"
        return [name for name in names if name.startswith(below)] if inside else list(names)

    def names_late(self, prefix: str, since_ms: int, shows_old: Callable[[], bool]) -> list[str]:
        """The names as a late list shows them: of what changed since then, each perhaps as it was before."""
        names = dict.fromkeys(self.names(prefix))
        below = f"{prefix}/" if prefix else ""
        asked: set[str] = set()
        for when_ms, name, was_there in self._changes:
            if when_ms <= since_ms or name in asked or not name.startswith(below):
                continue
            asked.add(name)
            if shows_old():
                if was_there:
                    names[name] = None
                else:
                    names.pop(name, None)
        return list(names)

    def _write(self, name: str, data: bytes) -> None:
        assert is_object_name(name), name
        self._changed(name)
        self.objects[name] = data
        self._folders[_first_part(name)][name] = None
        self._modified_ms[name] = self._now_ms()

    def _changed(self, name: str) -> None:
        now_ms = self._now_ms()
        self._changes.append((now_ms, name, name in self.objects))
        while self._changes[0][0] < now_ms - self._remembered_ms:
            self._changes.popleft()

    def unanswered(self, name: str) -> None:
        self._told().unanswered(name)

    def _told(self) -> Witness:
        assert self.witness is not None
        return self.witness


def _first_part(name: str) -> str:
    folder, slash, _ = name.partition("/")
    return folder if slash else ""
