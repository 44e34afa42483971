"""Rows as JSON text, array by array: Arrow's kernels build the text, and Python never holds a row.

The forms are those that Kafka Connect, Debezium and Spark read and write:

| Arrow | JSON |
|---|---|
| boolean, integers | literals; an integer has all its digits, also beyond 2^53 |
| float | a number with as many digits as bring it back; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| decimal | a string, `"12.50"` |
| string, binary | a string; binary as base64 |
| date, time, timestamp | a string of ISO 8601; a timestamp with a time zone is in UTC and ends in `Z` |
| list, struct, map with text keys | an array, an object, an object |
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dagster_ckpt.errors import InvalidPipelineError

_BATCH_BYTES = 32 << 20
"""Larger batches are cut: an Arrow string array holds 2 GiB, and escaping makes a text up to six times as long."""
_BATCH_ROWS = 16_384

_DIGITS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_ESCAPED = '[\\x00-\\x1f"\\\\]'
_CONTROL = "[\\x00-\\x1f]"


def check_json(column: str, kind: pa.DataType, destination: str) -> None:
    """Raise `InvalidPipelineError` for a type that JSON text does not hold without loss."""
    if types.is_struct(kind):
        for field in kind.fields:
            check_json(f"{column}.{field.name}", field.type, destination)
    elif types.is_list(kind) or types.is_large_list(kind):
        check_json(column, kind.value_type, destination)
    elif types.is_map(kind) and types.is_string(kind.key_type):
        check_json(column, kind.item_type, destination)
    elif types.is_nested(kind) or _form_of(kind) is None:
        raise InvalidPipelineError(
            f"JSON has no form for this type: cast it in the stream, for example an interval to a number of seconds. "
            f"column={column}, type={kind}, destination={destination}"
        )


def in_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches whose JSON text fits into arrays. No batch is empty."""
    for batch in batches:
        rows = max(1, min(_BATCH_ROWS, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes)))
        for begin in range(0, batch.num_rows, rows):
            yield batch.slice(begin, rows)


def json_rows(batch: pa.RecordBatch) -> pa.StringArray:
    """A JSON object for each row. The batch is one of `in_pieces`, with types that `check_json` passes."""
    return _objects(batch.schema.names, batch.columns, batch.num_rows)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.StringArray:
    parts: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        parts += [f"{',' if parts else ''}{json.dumps(name, ensure_ascii=False)}:", _json(column)]
    if not parts:
        return pa.repeat("{}", rows)
    return pc.binary_join_element_wise("{", *parts, "}", "")


def _json(values: pa.Array) -> pa.StringArray:
    """The JSON text of each value; none is null."""
    form = _form_of(values.type)
    assert form is not None, "check_json has refused the others"
    text = form(values)  # where a value is null, any text or none
    return pc.if_else(values.is_valid(), text, "null") if values.null_count else text


def _form_of(kind: pa.DataType) -> Callable[[pa.Array], pa.StringArray] | None:
    return next((form for is_one, form in _FORMS if is_one(kind)), None)


def _literals(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.string())


def _strings(values: pa.Array) -> pa.StringArray:
    return _quote(values.cast(pa.string()))


def _texts(values: pa.Array) -> pa.StringArray:
    return _quote(_escape(values))


def _bytes(values: pa.Array) -> pa.StringArray:
    return _quote(_base64(values))


def _timestamps(values: pa.Array) -> pa.StringArray:
    # A zoned timestamp is stored in UTC. A cast with the zone would look the zone up for every value.
    text = values.view(pa.timestamp(values.type.unit)).cast(pa.string())
    after = '"' if values.type.tz is None else 'Z"'
    return _around('"', pc.replace_substring(text, " ", "T", max_replacements=1), after)


def _lists(values: pa.Array) -> pa.StringArray:
    return _around("[", _join(values, _json(values.flatten())), "]")


def _structs(values: pa.StructArray) -> pa.StringArray:
    return _objects([field.name for field in values.type.fields], values.flatten(), len(values))


def _around(before: str, text: pa.Array, after: str) -> pa.StringArray:
    return pc.binary_join_element_wise(before, text, after, "")


def _quote(text: pa.Array) -> pa.StringArray:
    return _around('"', text, '"')


def _floats(values: pa.Array) -> pa.StringArray:
    text = values.cast(pa.string())
    # Arrow writes 1.0 as 1, which a reader without a schema takes for an integer.
    if pc.any(pc.equal(values, pc.trunc(values))).as_py():
        text = pc.if_else(pc.match_substring_regex(text, "^-?[0-9]+$"), _around("", text, ".0"), text)
    finite = pc.is_finite(values)
    if pc.all(finite).as_py() is not False:
        return text
    infinite = pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"')
    return pc.if_else(finite, text, pc.if_else(pc.is_nan(values), '"NaN"', infinite))


def _escape(text: pa.Array) -> pa.StringArray:
    text = text.cast(pa.string())
    if not pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        return text
    text = pc.replace_substring(text, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
        for code in range(0x20):
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return text


def _join(lists: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    """The texts of each list's values with commas between them. `texts` are those of all lists, without null lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _maps(maps: pa.MapArray) -> pa.StringArray:
    # As a list of structs: its flatten() honors slices and nulls.
    entries = maps.cast(pa.list_(pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])))
    keys, items = entries.flatten().flatten()
    return _around("{", _join(entries, pc.binary_join_element_wise(_json(keys), _json(items), ":")), "}")


def _base64(values: pa.Array) -> pa.StringArray:
    """RFC 4648 with padding: all values at once, each padded to whole groups of three bytes."""
    values = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, offsets, data = values.buffers()
    begins = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(begins)
    groups = (lengths + 2) // 3
    ends = np.cumsum(groups)
    there = np.frombuffer(data, np.uint8)[begins[0] : begins[-1]] if data is not None else np.zeros(0, np.uint8)
    padded = np.zeros((int(groups.sum()), 3), np.uint8)
    shift = 3 * (ends - groups) - (begins[:-1] - begins[0])
    padded.reshape(-1)[np.arange(len(there)) + np.repeat(shift, lengths)] = there
    bits = padded.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    text = _DIGITS[(bits[:, None] >> np.array([18, 12, 6, 0], np.uint32)) & 0x3F]
    text[ends[lengths % 3 != 0] - 1, 3] = ord("=")
    text[ends[lengths % 3 == 1] - 1, 2] = ord("=")
    of_text = pa.py_buffer(np.concatenate([[0], 4 * ends]).astype(np.int64))
    return pa.LargeStringArray.from_buffers(len(values), of_text, pa.py_buffer(text.tobytes())).cast(pa.string())


_FORMS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.StringArray]]] = (
    (types.is_null, _literals),
    (types.is_boolean, _literals),
    (types.is_integer, _literals),
    (types.is_floating, _floats),
    (types.is_decimal, _strings),
    (_is_text, _texts),
    (_is_binary, _bytes),
    (types.is_date32, _strings),
    (types.is_time, _strings),
    (types.is_timestamp, _timestamps),
    (types.is_list, _lists),
    (types.is_large_list, _lists),
    (types.is_map, _maps),
    (types.is_struct, _structs),
)
