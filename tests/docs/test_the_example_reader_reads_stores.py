"""`examples/readers/read_a_store.py` reads tables with nothing but pyarrow and the page on the format."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from dagster_ckpt.history import CheckpointStore
from tests.fixtures.stores.read import STORES, unpacked

READER = Path(__file__).parents[2] / "examples/readers/read_a_store.py"
LINES_MAX = 150
STANDARD = {"base64", "collections", "gzip", "json", "pathlib", "sys", "typing"}
TOO_MUCH = (NotImplementedError, ValueError)
"""What it raises for tables that are made of more than it knows."""


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_a_store", READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_needs_pyarrow_alone() -> None:
    text = READER.read_text()
    assert len(text.splitlines()) <= LINES_MAX + 30, "with blank lines"
    assert len([line for line in text.splitlines() if line]) <= LINES_MAX
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported - STANDARD == {"pyarrow"}


@pytest.mark.parametrize("written", STORES, ids=lambda folder: folder.name)
def test_what_it_reads_is_the_table(reader: ModuleType, written: Path, tmp_path: Path) -> None:
    root = unpacked(written, tmp_path)
    store, read = CheckpointStore(root.as_uri()), list[str]()
    for name in store.streams():
        try:
            found = reader.table_of(root, name)
        except pa.ArrowException:
            raise  # some are a NotImplementedError too
        except TOO_MUCH:
            continue
        expected = store.stream(name).read().to_pylist()
        assert sorted(map(_text, found)) == sorted(map(_text, expected)), name
        read.append(name)
    assert len(read) >= (9 if written.name == "1-streams" else 2), read


def _text(row: dict[str, object]) -> str:
    return repr(sorted(row.items()))
