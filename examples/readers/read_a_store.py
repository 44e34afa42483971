"""Reads the table of a stream with nothing but pyarrow and docs/format.md: `python read_a_store.py STORE STREAM`.

It is what a reader in any language does. STORE is a local folder, STREAM the stream's name. Append-only tables, tables
whose state has the rows themselves, and running aggregates of count, sum, min, max and mean.
"""

import base64
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Row = dict[str, Any]


def folder_of(stream: str) -> str:
    """Section 1: each part of the name in UTF-8, all but a-z 0-9 _ - as %xx."""
    plain = set(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
    parts = (part.encode() for part in stream.split("/"))
    return ".".join("".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in part) for part in parts)


def unpacked(path: Path) -> Row:
    """Sections 2 and 3: gzip of JSON, with the number of the format."""
    fields: Row = json.loads(gzip.decompress(path.read_bytes()))
    assert fields["format"] == 1, f"a newer release wrote this: {path}"
    return fields


def records(columns: Row) -> list[Row]:
    """Records that are stored by column: a list, or one value for all."""
    count = columns["count"]
    lists = {
        name: [value["all"]] * count if isinstance(value, dict) else value
        for name, value in columns.items()
        if name != "count"
    }
    return [{name: values[number] for name, values in lists.items()} for number in range(count)]


def schema_of(schema: Row) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema["ipc"])))


def newest_manifest(folder: Path) -> Row:
    """The one with the greatest number; one that is lost has a line of plain text in its place."""
    for path in sorted((folder / "manifest").glob("[0-9]*.json"), reverse=True):
        if path.read_bytes()[:2] == b"\x1f\x8b":
            return unpacked(path)
    raise FileNotFoundError(f"no stream in {folder}")


def place(folder: Path, manifest: Row, ref: Row) -> Path:
    """Where a file is: in the stream's folder, or in that of the ancestor that owns it."""
    owners = {each["uuid"]: folder.parent / folder_of(each["stream"]) for each in manifest["ancestors"]}
    owner: Path = owners.get(ref["ancestor"], folder)
    return owner / str(ref["path"])


def as_in(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file may have an earlier schema: columns by their names in files; wider types; null for what it has not."""

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        id_ = (field.metadata or {}).get(b"dagster_ckpt.column_id", field.name.encode()).decode()
        name = id_ if id_ in table.column_names else None
        whole = field.name.replace("_sum_high", "_sum").replace("_sum_low", "_sum")
        if name is None and whole in table.column_names:  # a file that is older than the two halves
            total = table[whole].cast(pa.int64())
            return pc.shift_right(total, 32) if "_high" in field.name else pc.bit_wise_and(total, 0xFFFFFFFF)
        if name is None:
            return pa.nulls(len(table), field.type)
        is_narrow = pa.types.is_temporal(field.type) and pa.types.is_integer(table[name].type)
        return (table[name].cast(pa.int64()) if is_narrow else table[name]).cast(field.type)

    columns = [column(field) for field in schema]
    return pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def appended(folder: Path, manifest: Row) -> list[Row]:
    """Section 5: an append-only table is all its files, in their order."""
    files = manifest["files"]
    listed = [
        record
        for index in records(files["index"])
        for record in records(unpacked(place(folder, manifest, index))["entries"])
    ]
    schema = schema_of(manifest["pipeline"]["output"])
    tables = [
        as_in(pq.read_table(place(folder, manifest, each)), schema) for each in (*listed, *records(files["tail"]))
    ]
    return pa.concat_tables(tables).to_pylist() if tables else []


def visible(table: pa.Table, run: Row, time: str | None) -> pa.Table:
    """Section 2: the rows of a run within its clip, outside of its merge range, and not expired."""
    hashes = table["_hash"]

    def number(digits: str) -> pa.Scalar:
        return pa.scalar(int(digits, 16), pa.uint64())

    least, greatest = (number(digits) for digits in run["clip"].split("-"))
    shown = pc.and_(pc.greater_equal(hashes, least), pc.less_equal(hashes, greatest))
    low, high = number(run["moved_lo"]), number(run["moved_hi"])
    if low != high:
        above, below = pc.greater_equal(hashes, low), pc.less(hashes, high)
        moved = pc.and_(above, below) if low.as_py() < high.as_py() else pc.or_(above, below)
        shown = pc.and_(shown, pc.invert(moved))
    if time is not None and run.get("times"):
        shown = pc.and_(shown, pc.greater_equal(table[time].cast(pa.int64()), run["times"]["least_us"]))
    return table.filter(shown)


def kept(folder: Path, manifest: Row, spec: Row) -> Iterator[Row]:
    """Section 4: in each shard the newest run that has a key decides."""
    stored = manifest["runs"].get(spec["name"], {"shards": [], "runs": {"count": 0}})
    runs, schema = iter(records(stored["runs"])), schema_of(spec["schema"])
    for count in stored["shards"]:
        found: dict[tuple[object, ...], Row | None] = {}
        for run in (next(runs) for _ in range(count)):
            with pa.ipc.open_file(place(folder, manifest, run)) as file:
                table = visible(file.read_all(), run, spec["time"])
            for row, gone in zip(as_in(table, schema).to_pylist(), table["_tombstone"].to_pylist(), strict=True):
                found.setdefault(tuple(row[key] for key in spec["keys"]), None if gone else row)
        yield from (row for row in found.values() if row is not None)


def aggregate(row: Row, spec: Row) -> Any:
    """An aggregate's value, from the columns in which its state keeps it."""
    function, column = spec["function"], spec["column"]
    since = f" since {spec['since']}" if spec.get("since") is not None else ""
    counted = row[f"_rows{since}"] if column is None else row.get(f"_n({column}){since}")
    match function:
        case "count":
            return counted or 0
        case "min" | "max":
            return row[f"_{function}({column}){since}"]
        case "sum" | "avg" if counted:
            high, low = row.get(f"_sum_high({column}){since}"), row.get(f"_sum_low({column}){since}")
            total = row[f"_sum({column}){since}"] if high is None else (high << 32) + low
            return total if function == "sum" else total / counted
        case "sum" | "avg":
            return None
    raise NotImplementedError(f"this reader is short: it does not know {function}")


def table_of(store: Path, stream: str) -> list[Row]:
    """The rows of the stream's table at its newest epoch."""
    folder = store / folder_of(stream)
    manifest = newest_manifest(folder)
    pipeline = manifest["pipeline"]
    if pipeline["appends"]:
        return appended(folder, manifest)
    tables = ["groups"] if pipeline["operator"] == "aggregate" else ["rows", "table"]
    [spec] = [each for each in pipeline["tables"] if each["name"] in tables]
    rows = list(kept(folder, manifest, spec))
    for each in pipeline["parameters"]["aggregates"] if tables == ["groups"] else ():
        for row in rows:
            row[each["name"]] = aggregate(row, each)
    stored = {theirs: ours for ours, theirs in pipeline.get("columns", [])}
    output = [(name, stored.get(name, name)) for name in schema_of(pipeline["output"]).names]
    repeated = "" if tables == ["groups"] or pipeline["operator"] == "distinct" else "_rows"
    return [{name: row[column] for name, column in output} for row in rows for _ in range(row.get(repeated, 1))]


if __name__ == "__main__":
    for line in table_of(Path(sys.argv[1]), sys.argv[2]):
        sys.stdout.write(f"{line}\n")
