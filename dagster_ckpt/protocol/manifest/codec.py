"""The fields of manifests and of what index objects list, as JSON. `packing` makes bytes of it.

Run references are written as columns: 512 shards of 8 runs stay below 200 kB. Numbers that may exceed 2**53 (hashes)
are written as hexadecimal text, because many JSON readers would round them.
"""

import base64
import binascii
import json
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import SHARDS_MAX, Nonce
from dagster_ckpt.protocol.json_codec import (
    BOOLEAN,
    COUNT,
    TEXT,
    WHOLE,
    Codec,
    Json,
    Record,
    mapping,
    member,
    optional,
    pair,
    sequence,
    texts,
    up_to,
)
from dagster_ckpt.protocol.manifest.manifest import (
    ABANDONED_MAX,
    Ancestor,
    Backfill,
    BackfillStatus,
    ChangeKind,
    ChangeRef,
    ColumnDigest,
    Consumed,
    EpochRange,
    FileSeen,
    FilesMoved,
    Handover,
    IndexedList,
    IndexRef,
    InitialTable,
    InputSpec,
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    ReadBy,
    Retained,
    RunRef,
    ShardTime,
    SinkMark,
    SortKind,
    SourceIdentity,
    SourcePosition,
    StateTableSpec,
    Statistics,
    StepWork,
    TimeRange,
)
from dagster_ckpt.protocol.manifest.packing import JSON_BYTES_MAX, pack, unpack, unpacked_bytes
from dagster_ckpt.protocol.object_names import is_object_name, manifest_name

MANIFEST_BYTES_MAX = 4 * 1024 * 1024


def _path(value: Json) -> str:
    if type(value) is not str or not is_object_name(value):
        raise ValueError(f"not a name inside the stream's folder: {value!r}")
    return value


_DIGITS = 16
"""How many hexadecimal digits a hash has. There may be thousands of hashes, which are written and read at once."""


def _encode_hashes(values: list[int]) -> list[str]:
    digits = np.array(values, dtype=">u8").tobytes().hex()
    return [digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS)]


def _hashes(texts: list[str]) -> list[int]:
    wrong = next((text for text in texts if len(text) != _DIGITS or not text.isalnum()), None)
    if wrong is not None:
        raise ValueError(f"expected {_DIGITS} hexadecimal digits, found {wrong!r}")
    try:
        data = bytes.fromhex("".join(texts))
    except ValueError:
        return [int(text, 16) for text in texts]  # its error says which text is none
    values: list[int] = np.frombuffer(data, dtype=">u8").tolist()
    return values


def _encode_ranges(values: list[HashRange]) -> list[str]:
    least, greatest = (_encode_hashes(list(each)) for each in zip(*values, strict=True))
    return [f"{lo}-{hi}" for lo, hi in zip(least, greatest, strict=True)]


def _ranges(texts: list[str]) -> list[HashRange]:
    wrong = next((text for text in texts if len(text) != 2 * _DIGITS + 1 or text[_DIGITS] != "-"), None)
    if wrong is not None:
        raise ValueError(f"expected two hashes, found {wrong!r}")
    least, greatest = _hashes([text[:_DIGITS] for text in texts]), _hashes([text[_DIGITS + 1 :] for text in texts])
    return list(map(HashRange, least, greatest))


def _encode_schema(schema: pa.Schema) -> Json:
    ipc = base64.b64encode(schema.serialize()).decode()
    # The text is for people; only `ipc` is read.
    return {"text": _text_of_schema(ipc), "ipc": ipc}


def _schema(value: Json) -> pa.Schema:
    try:
        return _decode_schema(value["ipc"])
    except (KeyError, TypeError, binascii.Error, pa.ArrowException, OSError) as error:
        raise ValueError(f"not an Arrow schema ({type(error).__name__})") from error


# A stream has the same few schemas in all its manifests.
@lru_cache(maxsize=256)
def _decode_schema(ipc: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(ipc, validate=True)))


@lru_cache(maxsize=256)
def _text_of_schema(ipc: str) -> str:
    text: str = _decode_schema(ipc).to_string(show_schema_metadata=False)
    return text


def _parameters(value: Json) -> dict[str, object]:
    if type(value) is not dict:
        raise ValueError(f"expected dict, found {type(value).__name__}")
    return value


PATH = Codec(_path)
HASH: Codec[int] = texts(_hashes, _encode_hashes)
HASH_RANGE: Codec[HashRange] = texts(_ranges, _encode_ranges)
SCHEMA = Codec(_schema, _encode_schema)
TIME_RANGE = Record(TimeRange, {"least_us": WHOLE, "greatest_us": WHOLE}).codec()

FILE_BYTES_MAX = 1 << 40
FILE_BYTES = up_to(FILE_BYTES_MAX)
"""The bytes of a file. A reader of a remote store makes room for them before it sees the file."""

RUN = Record(
    RunRef,
    {
        "path": PATH,
        "rows": COUNT,
        "bytes": FILE_BYTES,
        "checksum": TEXT,
        "epoch": COUNT,
        "level": COUNT,
        "tombstones": COUNT,
        "hashes": HASH_RANGE,
        "clip": HASH_RANGE,
        "moved_lo": HASH,
        "moved_hi": HASH,
        "times": optional(TIME_RANGE),
        "ancestor": optional(TEXT),
    },
)
CHANGE = Record(
    ChangeRef,
    {
        "path": PATH,
        "rows": COUNT,
        "bytes": FILE_BYTES,
        "checksum": TEXT,
        "epoch": COUNT,
        "shard": COUNT,
        "kind": member(ChangeKind),
        "times": optional(TIME_RANGE),
        "ancestor": optional(TEXT),
    },
)
FILE_SEEN = Record(FileSeen, {"path": TEXT, "modified_ms": WHOLE})
RUNS: Codec[tuple[RunRef, ...]] = RUN.columns()
CHANGES: Codec[tuple[ChangeRef, ...]] = CHANGE.columns()
FILES_SEEN: Codec[tuple[FileSeen, ...]] = FILE_SEEN.columns()
INDEX = Record(
    IndexRef,
    {"path": PATH, "entries": COUNT, "bytes": FILE_BYTES, "checksum": TEXT, "level": COUNT, "ancestor": optional(TEXT)},
)
SOURCE = Record(
    SourceIdentity,
    {"format": TEXT, "address": TEXT, "options": sequence(pair(TEXT, TEXT)), "ordinal": COUNT},
).codec()


def _indexed_list(entries: Codec[Any]) -> Codec[IndexedList[Any]]:
    return Record(IndexedList, {"index": INDEX.columns(), "tail": entries}).codec()


_INITIAL_TABLE = Record(
    InitialTable,
    {
        "rows": COUNT,
        "columns": Record(ColumnDigest, {"name": TEXT, "type": TEXT, "digest": TEXT}).columns(),
        "files": COUNT,
        "paths": sequence(TEXT),
    },
).codec()
POSITION = Record(
    SourcePosition,
    {
        "source": SOURCE,
        "current": optional(TEXT),
        "previous": optional(TEXT),
        "initial": optional(TEXT),
        "files": _indexed_list(FILES_SEEN),
        "moved": sequence(Record(FilesMoved, {"old": TEXT, "new": TEXT, "entries": COUNT}).codec()),
        "topics": sequence(pair(TEXT, TEXT)),
        "after_table": BOOLEAN,
        "table": optional(_INITIAL_TABLE),
    },
    absent={"moved": [], "topics": [], "after_table": False, "table": None},
).codec()
_INPUT = Record(
    InputSpec,
    {
        "sources": sequence(SOURCE),
        "schema": SCHEMA,
        "step": optional(COUNT),
        "behind_us": COUNT,
        "work": TEXT,
        "columns": sequence(pair(TEXT, TEXT)),
    },
    absent={"step": None, "behind_us": 0, "work": "", "columns": []},
).codec()
_TABLE = Record(
    StateTableSpec,
    {"name": TEXT, "schema": SCHEMA, "keys": sequence(TEXT), "sort": member(SortKind), "time": optional(TEXT)},
).codec()


def _pipeline(before: Codec[tuple[Pipeline, ...]]) -> Codec[Pipeline]:
    """A pipeline, with the codec of the steps before its last."""
    return Record(
        Pipeline,
        {
            "operator": TEXT,
            "parameters": Codec(_parameters),
            "inputs": sequence(_INPUT),
            "keys": sequence(TEXT),
            "tables": sequence(_TABLE),
            "output": SCHEMA,
            "appends": BOOLEAN,
            "before": before,
            "columns": sequence(pair(TEXT, TEXT)),
        },
        absent={"before": [], "columns": []},
    ).codec()


def _none_before(value: Json) -> tuple[Pipeline, ...]:
    if value != []:
        raise ValueError("a step has no steps of its own")
    return ()


_PIPELINE = _pipeline(sequence(_pipeline(Codec(_none_before, list))))


# A stream has the same pipeline in all its manifests: to decode that of sixteen steps takes longer than the rest. One
# process may have fifty streams, and read as many more.
@lru_cache(maxsize=256)
def _decode_pipeline(text: str) -> Pipeline:
    return _PIPELINE.decode(json.loads(text))


PIPELINE = Codec(lambda value: _decode_pipeline(json.dumps(value)), _PIPELINE.encode)
"""Equal pipelines that are read one after another are one object."""


def _encode_shards(shards: tuple[tuple[RunRef, ...], ...]) -> Json:
    runs = tuple(run for shard in shards for run in shard)
    return {"shards": [len(shard) for shard in shards], "runs": RUNS.encode(runs)}


def _shards(value: Json) -> tuple[tuple[RunRef, ...], ...]:
    counts, columns = _counts_and_columns(value)
    runs = RUNS.decode(columns)
    if sum(counts) != len(runs):
        raise ValueError(f"expected {sum(counts)} runs, found {len(runs)}")
    return tuple(runs[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True))


def _counts_and_columns(value: Json) -> tuple[tuple[int, ...], Json]:
    try:
        return sequence(COUNT).decode(value["shards"]), value["runs"]
    except (KeyError, TypeError) as error:
        raise ValueError("expected shards and runs") from error


def _are_read_back(value: Json, shards: tuple[tuple[RunRef, ...], ...]) -> bool:
    """Whether `_shards` would give just these. There may be thousands: column by column is three times as fast."""
    counts, columns = _counts_and_columns(value)
    runs = list(chain.from_iterable(shards))
    return counts == tuple(map(len, shards)) and all(
        column == list(map(attrgetter(name), runs)) for name, column in RUN.lists(columns).items()
    )


_HANDOVER = Record(Handover, {"epoch": COUNT, "before": PIPELINE, "after": PIPELINE}).codec()
_ANCESTOR = Record(
    Ancestor,
    {"uuid": TEXT, "stream": TEXT, "epoch": COUNT, "swapped": BOOLEAN, "handover": optional(_HANDOVER)},
    absent={"swapped": False, "handover": None},
).codec()
_NO_SHARD_TIMES = {"count": 0, "shard": [], "host": [], "milliseconds": [], "rows_in": []}
_NO_STEPS = {"count": 0, "rows_in": [], "rows_out": [], "late_rows": [], "milliseconds": []}
MANIFEST = Record(
    Manifest,
    {
        "version": COUNT,
        "kind": member(ManifestKind),
        "epoch": COUNT,
        "term": COUNT,
        "nonce": TEXT,
        "time_ms": WHOLE,
        "stream": TEXT,
        "uuid": TEXT,
        "owner": Record(Owner, {"instance": TEXT, "asset_key": TEXT, "location": TEXT}).codec(),
        "pipeline": PIPELINE,
        "shards": up_to(SHARDS_MAX),
        "parent": optional(COUNT),
        "parent_nonce": optional(TEXT),
        "batch_id": optional(COUNT),
        "runs": mapping(Codec(_shards, _encode_shards)),
        "changes": CHANGES,
        "files": _indexed_list(CHANGES),
        "watermark_us": optional(WHOLE),
        "event_times_us": sequence(optional(WHOLE)),
        "sources": sequence(POSITION),
        "consumed": sequence(
            Record(
                Consumed,
                {"stream": TEXT, "uuid": TEXT, "epoch": COUNT, "nonce": optional(TEXT)},
                absent={"nonce": None},
            ).codec()
        ),
        "sinks": sequence(Record(SinkMark, {"sink": TEXT, "epoch": COUNT, "version": COUNT}).codec()),
        "ancestors": sequence(_ANCESTOR),
        "backfill": Record(Backfill, {"status": member(BackfillStatus), "position": optional(TEXT)}).codec(),
        "statistics": Record(
            Statistics,
            {
                "rows_in": COUNT,
                "rows_out": COUNT,
                "late_rows": COUNT,
                "epoch_ms": COUNT,
                "change_bytes": COUNT,
                "state_rows": COUNT,
                "state_bytes": COUNT,
                "total_rows_in": COUNT,
                "total_epochs": COUNT,
                "merged_rows": COUNT,
                "stall_ms": COUNT,
                "total_rows_out": COUNT,
                "total_late_rows": COUNT,
                "table_rows": optional(COUNT),
                "late_rows_by_input": sequence(COUNT),
                "read_by": optional(member(ReadBy)),
            },
            absent={"table_rows": 0, "late_rows_by_input": [], "read_by": None},
        ).codec(),
        "retained": Record(Retained, {"epoch": COUNT, "version": COUNT, "time_ms": WHOLE}).columns(),
        "abandoned": Record(EpochRange, {"first": COUNT, "last": COUNT}).columns(ABANDONED_MAX),
        "rollbacks": sequence(TEXT),
        "harvested_us": optional(WHOLE),
        "checkpoint_interval_ms": optional(COUNT),
        "slowest_shards": Record(
            ShardTime,
            {"shard": COUNT, "host": TEXT, "milliseconds": COUNT, "rows_in": COUNT, "step": COUNT},
            absent={"step": 0},
        ).columns(),
        "steps": Record(
            StepWork, {"rows_in": COUNT, "rows_out": COUNT, "late_rows": COUNT, "milliseconds": COUNT}
        ).columns(),
        "shown_nonce": optional(TEXT),
        "functions": sequence(pair(TEXT, TEXT)),
    },
    absent={
        "parent_nonce": None,
        "checkpoint_interval_ms": None,
        "slowest_shards": _NO_SHARD_TIMES,
        "steps": _NO_STEPS,
        "shown_nonce": None,
        "functions": [],
    },
).codec()


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest; equal manifests give equal bytes. Raises `InvalidPipelineError` above 4 MB."""
    data = pack(MANIFEST.encode(manifest))
    if len(data) > MANIFEST_BYTES_MAX or unpacked_bytes(data) > JSON_BYTES_MAX:
        raise InvalidPipelineError(
            f"the epoch's manifest is too large; nothing was committed. Use fewer shards, or fewer and larger "
            f"input files for each epoch. bytes={len(data)}, bytes_max={MANIFEST_BYTES_MAX}, shards={manifest.shards}"
        )
    return data


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The manifest in these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, MANIFEST.decode)


def is_read_back(data: bytes, manifest: Manifest) -> bool:
    """Whether `decode_manifest` gives just this manifest. Raises as it does."""

    def decode(fields: Json) -> bool:
        runs, others = fields["runs"], MANIFEST.decode({**fields, "runs": {}})
        return (
            others == replace(manifest, runs={})
            and runs.keys() == manifest.runs.keys()
            and all(_are_read_back(runs[table], shards) for table, shards in manifest.runs.items())
        )

    return unpack(data, manifest_name(manifest.version), decode)


def decode_nonce(data: bytes, name: str) -> Nonce:
    """The nonce alone, at a fraction of the cost. Raises as `decode_manifest` does."""
    return unpack(data, name, lambda fields: Nonce(TEXT.decode(fields.get("nonce"))))
