"""Manifests to test with: a plain one, and Hypothesis strategies for any."""

import dataclasses
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
from hypothesis import strategies as st

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import SHARDS_MAX, Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.protocol.manifest.codec import FILE_BYTES_MAX
from dagster_ckpt.protocol.manifest.manifest import (
    ChangeRef,
    IndexRef,
    InputSpec,
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    RunRef,
    SourceIdentity,
    StateTableSpec,
)
from dagster_ckpt.protocol.object_names import FileId, changes_name, state_name

ROWS = pa.schema([pa.field("carrier", pa.string()), pa.field("delay", pa.float64())])
OWNER = Owner("instance-1", "flights/delay_by_carrier", "flights")
SOURCE = SourceIdentity("parquet", "file:///data/departures", (("maxFilesPerTrigger", "4"),))
PIPELINE = Pipeline(
    operator="aggregate",
    parameters={"mean_delay": {"function": "avg", "column": "delay"}},
    inputs=(InputSpec((SOURCE,), ROWS),),
    keys=("carrier",),
    tables=(StateTableSpec("total", ROWS, ("carrier",)),),
    output=ROWS,
)


def a_run(term: int, epoch: int, shard: int, shards: int = 4, attempt: int = 0) -> RunRef:
    """A run as a task of that term, epoch and shard names it."""
    path = state_name("total", (Shard(shard),), shards, FileId(Term(term), Epoch(epoch), Shard(shard), attempt))
    return RunRef(path, rows=10, bytes=1000, checksum="0123456789abcdef", epoch=Epoch(epoch))


def a_change(term: int, epoch: int, shard: int, attempt: int = 0) -> ChangeRef:
    """A file of the change log as a task of that term, epoch and shard names it."""
    path = changes_name(FileId(Term(term), Epoch(epoch), Shard(shard), attempt))
    return ChangeRef(path, rows=5, bytes=500, checksum="fedcba9876543210", epoch=Epoch(epoch), shard=Shard(shard))


def a_manifest(**fields: Any) -> Manifest:
    """The manifest of a stream just created, with these fields instead."""
    plain = Manifest(
        version=Version(1),
        kind=ManifestKind.OPEN,
        epoch=Epoch(0),
        term=Term(1),
        nonce=Nonce("a" * 32),
        time_ms=1_700_000_000_000,
        stream="flights/delay_by_carrier",
        uuid=StreamUuid("b" * 32),
        owner=OWNER,
        pipeline=PIPELINE,
        shards=4,
        runs={"total": ((), (), (), ())},
    )
    return dataclasses.replace(plain, **fields)


NUMBERS = st.integers(0, 2**63 - 1)
PATHS = st.from_regex(r"(state|changes|index)/[a-z0-9-]{1,8}\.arrow", fullmatch=True)
TEXTS = st.text(max_size=12)
HASHES = st.integers(0, HASH_MAX)
SCHEMAS = st.sampled_from(
    [
        ROWS,
        pa.schema([]),
        pa.schema([pa.field("ä", pa.timestamp("us", "UTC"), nullable=False), ("d", pa.decimal128(38, 9))]),
        pa.schema([pa.field("l", pa.list_(pa.struct([("x", pa.int8())])), metadata={"a": "b"})], metadata={"c": "d"}),
    ]
)
PARAMETERS: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
_SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (RunRef, "path"): PATHS,
    (ChangeRef, "path"): PATHS,
    (IndexRef, "path"): PATHS,
    **{(kind, "bytes"): st.integers(0, FILE_BYTES_MAX) for kind in (RunRef, ChangeRef, IndexRef)},
    (RunRef, "moved_lo"): HASHES,
    (RunRef, "moved_hi"): HASHES,
    (Manifest, "shards"): st.integers(0, SHARDS_MAX),
    (Pipeline, "parameters"): st.dictionaries(TEXTS, PARAMETERS, max_size=3),
}


def any_value(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type, following the type hints: a new field is tested from its first day."""
    arguments = get_args(kind)
    origin = get_origin(kind) or kind
    if type(None) in arguments:
        found = st.none() | any_value(next(argument for argument in arguments if argument is not type(None)))
    elif origin is tuple and arguments[-1] is ...:
        found = st.lists(any_value(arguments[0]), max_size=3).map(tuple)
    elif origin is tuple:
        found = st.tuples(*map(any_value, arguments))
    elif origin is dict:
        found = st.dictionaries(TEXTS, any_value(arguments[1]), max_size=2)
    elif dataclasses.is_dataclass(origin):
        found = any_record(origin, arguments)
    elif isinstance(origin, type) and issubclass(origin, StrEnum):
        found = st.sampled_from(list(origin))
    else:
        plain = getattr(origin, "__supertype__", origin)  # what a NewType is made of
        kinds = {bool: st.booleans(), int: NUMBERS, str: TEXTS, pa.Schema: SCHEMAS}
        found = st.builds(HashRange, HASHES, HASHES) if plain is HashRange else kinds[plain]
    return found


def any_record(kind: Any, arguments: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Any value of a dataclass; `arguments` stand for the type variables of a generic one."""
    hints = get_type_hints(kind)
    actual = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=True))
    fields = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if any(inner in actual for inner in get_args(hint)):
            hint = hint[tuple(actual.values())]
        special = _SPECIAL.get((kind, field.name))
        fields[field.name] = any_value(hint) if special is None else special
    return st.builds(kind, **fields)


_SPECIAL[Pipeline, "before"] = st.just(())
_SPECIAL[Pipeline, "before"] = st.lists(any_record(Pipeline), max_size=2).map(tuple)
MANIFESTS: st.SearchStrategy[Manifest] = any_record(Manifest)
