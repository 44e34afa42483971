"""The one place that spells and parses the names of objects. No other module builds or parses a path.

A store holds one folder per stream; below it

    manifest/<version, 20 digits>.json              created once, never changed
    state/<table>/<shards>/<file>.arrow             runs; <shards>: `00004-of-00008`, or `00004-00007-of-00008`
    changes/<file>.parquet                          the change log
    table/<merges>/<file>.parquet                   an append-only stream's rows, merged <merges> times
    index/<file>.json                               lists too long for a manifest
    lease/<term, 20 digits>.json                    the live writer's heartbeat
    requests/<name>.json  pins/<name>.json  subscribers/<name>.json
    verdicts/<nonce>                                whether the pin with this nonce keeps its epoch: created once
    trimmed.json                                    version 1 may be gone: created before the first manifest is deleted
    collector.json                                  when garbage was last collected
    pins-changed.json                               advice: another text after each change of the pins

where `<file>` is `<term>-<epoch>-<shard>-<attempt>`, followed by `-<number>` from a task's second file on: no two
attempts ever share a name. All names are relative to the stream's folder.

A fork reads files of other streams, and calls each `ancestors/<that stream's uuid>/<its path there>`. No object has
that name: the file is in another stream's folder, where `storage.holders.ancestors` finds it.

A name part that begins with a dot is never an object: stores may keep unfinished files under such names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version

MANIFESTS = "manifest"
LEASES = "lease"
INDEX = "index"
PINS = "pins"
VERDICTS = "verdicts"
SUBSCRIBERS = "subscribers"
ANCESTORS = "ancestors"
FORK_PINS = "fork-"
TRIMMED = "trimmed.json"
COLLECTOR = "collector.json"
PINS_CHANGED = "pins-changed.json"

_NAMES_REMEMBERED = 8192
"""Each call to a store, and each listing, parses the same names again: about as many as a large manifest has."""
_PROBE = f"{MANIFESTS}/probe-"
NAME_BYTES_MAX = 255  # of one name on every common file system
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9_%=-][A-Za-z0-9_.%=-]*(?:/[A-Za-z0-9_%=-][A-Za-z0-9_.%=-]*)*")
_NAME_PART = re.compile(r"(?:[^/\\]|\\.)+", re.DOTALL)
_NUMBERED = re.compile(r"(manifest|lease)/([0-9]{20})\.json")

_MERGED = re.compile(r"table/([0-9]+)/[^/]+")
_FILE = re.compile(
    r"(?:state/[^/]+/[^/]+|changes|table/[0-9]+|index)/([0-9]+)-([0-9]+)-([0-9]+)-([0-9]+)(?:-([0-9]+))?\.(?:arrow|parquet|json)"
)


@dataclass(frozen=True, slots=True)
class FileId:
    """What makes a file's name unique: the writer's term, epoch, shard, attempt and ordinal."""

    term: Term
    epoch: Epoch
    shard: Shard
    attempt: int
    number: int = 0

    def __str__(self) -> str:
        name = f"{self.term}-{self.epoch}-{self.shard}-{self.attempt}"
        return f"{name}-{self.number}" if self.number else name


def folder_of(parts: Sequence[str]) -> str:
    """The folder of the stream whose asset key has these parts.

    Distinct keys get distinct folders, also on a disk that ignores case.
    """
    if not parts or not all(parts):
        raise InvalidPipelineError(f"an asset key needs at least one part, and none may be empty. parts={list(parts)}")
    folder = ".".join(_escape(part) for part in parts)
    if len(folder) > NAME_BYTES_MAX:
        raise InvalidPipelineError(
            f"the asset key is too long to name a folder (a letter outside a-z, 0-9, _ and - takes 3 to 12): "
            f"shorten it. bytes={len(folder)}, bytes_max={NAME_BYTES_MAX}, parts={list(parts)}"
        )
    return folder


def parts_of(folder: str) -> tuple[str, ...]:
    """The asset key parts of a stream's folder. Raises ValueError for a folder that `folder_of` never makes."""
    try:
        parts = tuple(_unescape(part) for part in folder.split("."))
        if folder_of(parts) == folder:
            return parts
    except (UnicodeDecodeError, InvalidPipelineError):
        pass
    raise ValueError(f"not the folder of a stream. folder={folder!r}")


def name_of(parts: Sequence[str]) -> str:
    r"""The stream's name for people, as Dagster writes asset keys: joined by `/`; one inside a part is written `\/`."""
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in parts)


def parts_of_name(name: str) -> tuple[str, ...]:
    """The asset key parts of a stream's name; empty for a name that `name_of` never makes."""
    parts = tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in _NAME_PART.findall(name))
    return parts if name_of(parts) == name else ()


def manifest_name(version: Version) -> str:
    return f"{MANIFESTS}/{version:020d}.json"


@lru_cache(maxsize=_NAMES_REMEMBERED)
def parse_manifest_name(name: str) -> Version | None:
    """The version of a manifest's name; None for any other name."""
    number = _parse_numbered(MANIFESTS, name)
    return None if number is None else Version(number)


def lease_name(term: Term) -> str:
    return f"{LEASES}/{term:020d}.json"


@lru_cache(maxsize=_NAMES_REMEMBERED)
def parse_lease_name(name: str) -> Term | None:
    """The term of a lease's name; None for any other name."""
    number = _parse_numbered(LEASES, name)
    return None if number is None else Term(number)


def probe_name(unique: str) -> str:
    """The object that tests a store's create. It is beside the manifests, whose create is the one that matters."""
    return f"{_PROBE}{unique}"


def is_probe_name(name: str) -> bool:
    return name.startswith(_PROBE)


def state_name(table: str, shards: Sequence[Shard], of: int, file: FileId) -> str:
    """A run with rows of these shards (adjacent, ascending) of a stream of `of` shards."""
    first, last = shards[0], shards[-1]
    which = f"{first:05d}" if first == last else f"{first:05d}-{last:05d}"
    return f"state/{_escape(table)}/{which}-of-{of:05d}/{file}.arrow"


def table_in_name(name: str) -> str | None:
    """The state table of a run, also of an ancestor's; None for any other object."""
    ancestors = parse_ancestors_name(name)
    folder, _, rest = (name if ancestors is None else ancestors[1]).partition("/")
    return _unescape(rest.partition("/")[0]) if folder == "state" and rest else None


def changes_name(file: FileId) -> str:
    return f"changes/{file}.parquet"


def merged_name(merges: int, file: FileId) -> str:
    """A file of an append-only stream's table in which no row was merged more than `merges` times."""
    return f"table/{merges}/{file}.parquet"


def merge_count(name: str) -> int:
    """How often the rows of a file of an append-only stream's table were merged; 0 for one never merged."""
    match = _MERGED.fullmatch(name)
    return int(match[1]) if match else 0


def index_name(file: FileId) -> str:
    return f"{INDEX}/{file}.json"


@lru_cache(maxsize=_NAMES_REMEMBERED)
def parse_file_name(name: str) -> FileId | None:
    """The writer of a run, a file of the change log or of a table, or an index object; None for any other name."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    term, epoch, shard, attempt, number = (int(digits or 0) for digits in match.groups())
    return FileId(Term(term), Epoch(epoch), Shard(shard), attempt, number)


def name_in_stream(path: str, ancestor: StreamUuid | None) -> str:
    """A stream's unique name for a file: the path of one of its own, a name below `ancestors/` for an ancestor's."""
    return path if ancestor is None else f"{ANCESTORS}/{ancestor}/{path}"


def parse_ancestors_name(name: str) -> tuple[StreamUuid, str] | None:
    """The ancestor, and the path there, of a file in an ancestor's folder; None for any other name."""
    folder, _, rest = name.partition("/")
    ancestor, _, path = rest.partition("/")
    return (StreamUuid(ancestor), path) if folder == ANCESTORS and ancestor and path else None


def fork_pin_name(fork: StreamUuid) -> str:
    """The name of the pin, in each stream whose files a fork names, that keeps them for it."""
    return f"{FORK_PINS}{fork}"


def swap_pin_name(stream: StreamUuid, epoch: Epoch) -> str:
    """The name of the pin that keeps, for the stream, an epoch of the one that was built beside it."""
    return f"{FORK_PINS}{stream}-{epoch}"


def request_name(name: str) -> str:
    return f"requests/{_escape(name)}.json"


def pin_name(name: str) -> str:
    return f"{PINS}/{_escape(name)}.json"


def parse_pin_name(name: str) -> str:
    """The pin's name in the name of its object."""
    return _unescape(name.removeprefix(f"{PINS}/").removesuffix(".json"))


def verdict_name(nonce: Nonce) -> str:
    """Whether the pin with this nonce keeps its epoch."""
    return f"{VERDICTS}/{nonce}"


def parse_verdict_name(name: str) -> Nonce | None:
    """The nonce of the pin that a verdict is on; None for any other name."""
    folder, _, nonce = name.partition("/")
    return Nonce(nonce) if folder == VERDICTS and nonce else None


def subscriber_name(name: str) -> str:
    return f"{SUBSCRIBERS}/{_escape(name)}.json"


@lru_cache(maxsize=_NAMES_REMEMBERED)
def is_object_name(name: str) -> bool:
    """Whether a name can be an object's and stays inside its folder: no empty, hidden or `..` part, no first slash."""
    return _OBJECT_NAME.fullmatch(name) is not None


def _parse_numbered(folder: str, name: str) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return int(match[2]) if match and match[1] == folder else None


def _escape(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


def _unescape(text: str) -> str:
    plain = re.sub(rb"%([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
    return plain.decode("utf-8", "surrogatepass")
