"""A checkpoint is data. Whatever was written into it by hand, reading it runs no code and leaves no folder."""

import ast
import gzip
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dagster_ckpt
from dagster_ckpt.errors import CheckpointError, CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.codec import encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import PINS_CHANGED, manifest_name
from tests.unit.history.made_streams import MadeStream, append, departures

NAME = "delays"
OUTSIDE = [
    "../secret.arrow",
    "/secret.arrow",
    "state/../../secret.arrow",
    "..",
    "state//x",
    "s3://bucket/x",
    "state/x\n",
]


@pytest.fixture(params=["keyed", "append"])
def stream(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MadeStream:
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 2)
    (tmp_path / "secret.arrow").write_bytes(b"what is outside")
    made = (
        MadeStream(tmp_path.as_uri(), NAME)
        if request.param == "keyed"
        else MadeStream(tmp_path.as_uri(), NAME, append())
    )
    for delay in range(3):
        made.commit(departures({"UA": [delay], "AA": [delay]}))
    made.close()
    return made


def folder(stream: MadeStream) -> Path:
    return Path(stream.url.removeprefix("file://")) / NAME


def history(stream: MadeStream) -> StreamHistory:
    return CheckpointStore(stream.url).stream(NAME)


def rewrite(path: Path, edit: Callable[[Any], object]) -> None:
    """Change an object by hand: it is valid gzip over valid JSON again."""
    fields = json.loads(gzip.decompress(path.read_bytes()))
    edit(fields)
    path.write_bytes(gzip.compress(json.dumps(fields).encode(), mtime=0))


def newest(stream: MadeStream) -> Path:
    return folder(stream) / manifest_name(Version(4))


def readings(stream: MadeStream) -> Sequence[Callable[[], object]]:
    read = history(stream)
    return read.latest, read.read, read.epochs, read.manifest, read.verify, read.pins, lambda: read.rollback(2)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_name_in_a_manifest_leaves_the_streams_folder(stream: MadeStream, path: str) -> None:
    def edit(fields: Any) -> None:
        for files in (fields["runs"].get("groups", {}).get("runs"), fields["files"]["tail"], fields["files"]["index"]):
            if files and files["count"]:
                files["path"] = [path, *files["path"][1:]] if isinstance(files["path"], list) else [path]

    rewrite(newest(stream), edit)
    with pytest.raises(CorruptStateError, match=r"not a name inside the stream's folder.*good_epoch=3") as error:
        history(stream).read()
    assert manifest_name(Version(4)) in str(error.value)
    assert history(stream).verify().findings[0].object == manifest_name(Version(4))


def test_no_name_in_an_index_object_does(stream: MadeStream) -> None:
    listed = stream.writer.manifest.files.index
    if not listed:
        pytest.skip("a keyed stream's table is no list of files")
    path = folder(stream) / listed[0].path
    rewrite(path, lambda fields: fields["entries"].update(path=OUTSIDE[:1] * fields["entries"]["count"]))
    with pytest.raises(CorruptStateError, match=listed[0].path):
        history(stream).read()


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", ".", "a/b", "ü\n", "%2e%2e", "A"])
def test_no_name_of_a_pin_leaves_the_folder(stream: MadeStream, name: str) -> None:
    before = {path for path in folder(stream).parent.rglob("*") if path.is_file()}
    history(stream).pin(3, name)
    made, mark, verdict = sorted({path for path in folder(stream).parent.rglob("*") if path.is_file()} - before)
    assert (made.parent, mark) == (folder(stream) / "pins", folder(stream) / PINS_CHANGED)
    assert verdict.parent == folder(stream) / "verdicts"
    assert [pin.name for pin in history(stream).pins()] == [name]
    history(stream).unpin(name)
    assert not made.exists()


def test_a_name_too_long_for_an_object_is_refused_with_the_reason(stream: MadeStream) -> None:
    for name in ("x" * 251, "ü" * 60):
        with pytest.raises(InvalidPipelineError, match="too long to name an object"):
            history(stream).pin(3, name)
    history(stream).pin(3, "x" * 250)


@pytest.mark.parametrize("name", ["..", "../delays", "/", "delays/..", "%2e%2e", "delays\0"])
def test_no_name_of_a_stream_leaves_the_store(stream: MadeStream, name: str) -> None:
    with pytest.raises(InvalidPipelineError, match="no such stream"):
        CheckpointStore(f"{stream.url}/{NAME}").stream(name)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("pipeline", "operator"), "os.system"),
        (
            ("pipeline", "parameters"),
            {"aggregates": [{"name": "x", "function": "__import__('os')", "column": None, "by": None}]},
        ),
        (("pipeline", "parameters"), {}),
        (("pipeline", "parameters"), {"aggregates": [{}], "event_time": None}),
        (("pipeline", "parameters"), {"aggregates": "x", "event_time": {}}),
        (("pipeline", "tables"), []),
        (("pipeline", "keys"), ["nothing like it"]),
        (("pipeline", "output", "ipc"), "AAAA"),
        (("shards",), 2**70),
        (("stream",), "../../x"),
        (("retained", "version"), [2, 3, 10**17]),
        (("abandoned", "first"), -1),
    ],
)
def test_what_makes_no_sense_is_an_error_of_ours(stream: MadeStream, place: tuple[str, ...], value: object) -> None:
    def edit(fields: Any) -> None:
        for step in place[:-1]:
            fields = fields[step]
        fields[place[-1]] = value

    rewrite(newest(stream), edit)
    for read in readings(stream):
        try:
            read()
        except CheckpointError as error:
            assert "=" in str(error)  # noqa: PT017


@pytest.mark.parametrize("checksum", ["", "x", "-1:00", "0:00000000", "99999999999:00000000", "²:0"])
def test_a_checksum_that_makes_no_sense_is_damage(stream: MadeStream, checksum: str) -> None:
    def edit(fields: Any) -> None:
        files = fields["runs"]["groups"]["runs"] if "groups" in fields["runs"] else fields["files"]["tail"]
        files["checksum"] = {"all": checksum}

    rewrite(newest(stream), edit)
    shown = stream.writer.manifest
    if not shown.pipeline.tables and not shown.files.tail:
        pytest.skip("all is in index objects")
    with pytest.raises(CorruptStateError):
        history(stream).read()
    assert not history(stream).verify().whole


class Harmful:
    """Pickled, it makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def harmful(path: Path) -> dict[bytes, bytes]:
    """What old releases of Arrow unpickled when they met it in a schema."""
    return {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Harmful(path)),
        b"pandas": pickle.dumps(Harmful(path)),
    }


def test_reading_a_checkpoint_runs_no_code(stream: MadeStream, tmp_path: Path) -> None:
    trap = tmp_path / "code was run"
    pickle.loads(pickle.dumps(Harmful(trap)))
    assert trap.exists(), "the trap works"
    trap.unlink()
    shown = stream.writer.manifest
    fields = [field.with_metadata(harmful(trap)) for field in shown.pipeline.output]
    output = pa.schema(fields, metadata=harmful(trap))
    tables = tuple(
        replace(table, schema=pa.schema([field.with_metadata(harmful(trap)) for field in table.schema], harmful(trap)))
        for table in shown.pipeline.tables
    )
    made: Manifest = replace(shown, pipeline=replace(shown.pipeline, output=output, tables=tables))
    newest(stream).write_bytes(encode_manifest(made))
    for path in (folder(stream) / "changes").glob("*.parquet"):
        rows = pq.read_table(path)
        trapped = pa.schema([field.with_metadata(harmful(trap)) for field in rows.schema], harmful(trap))
        pq.write_table(rows.cast(trapped), path)
    for read in readings(stream):
        try:
            read()
        except (CorruptStateError, IncompatibleStateError):
            continue
    assert not trap.exists()


RUNS_CODE = {"eval", "exec", "compile", "__import__", "loads_pickle", "import_module"}


def test_nothing_that_reads_a_store_can_run_what_it_reads() -> None:
    package = Path(dagster_ckpt.__file__).parent
    found = []
    for layer in ("cli", "history", "operators", "state", "storage", "lsm", "protocol"):
        for file in (package / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                match node:
                    case ast.Call(func=ast.Name(id=name)) if name in RUNS_CODE:
                        found.append((file, name))
                    case ast.Import(names=names):
                        found += [(file, each.name) for each in names if each.name in {"pickle", "marshal", "shelve"}]
                    case ast.ImportFrom(module="pickle" | "marshal" | "shelve" | "importlib" | "runpy" as module):
                        found.append((file, module))
    assert found == []
