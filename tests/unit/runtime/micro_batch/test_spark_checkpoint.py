import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.protocol.manifest.manifest import FileSeen, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.micro_batch import seen_files
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import build_checkpoint
from dagster_ckpt.runtime.spark.process_folder import process_folder


def test_a_folder_whose_making_fails_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as for a damaged object with files seen: they are read while the folder is written."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def damaged() -> Iterator[pa.Table]:
        yield seen_files.files_table([FileSeen("file:///in/a", 1)])
        raise CorruptStateError("damaged")

    source = StreamSource(SourceIdentity("csv", "file:/in"), 0, (0,), reads_files=True)
    position = SourcePosition(source.identity, current='{"logOffset":3}')
    with pytest.raises(CorruptStateError):
        build_checkpoint((source,), (position,), {0: damaged()}, 3, {}, "0123456789abcdef" * 2)
    assert [file.name for file in process_folder().iterdir()] == ["lock"]


def test_a_batch_that_no_query_notes_is_noted_as_spark_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that a plan reads twice has two lines."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    twice = StreamSource(SourceIdentity("csv", "file:/in"), 0, (0, 2), reads_files=True)
    once = StreamSource(SourceIdentity("dagster_ckpt", "up"), 1, (1,), reads_files=False)
    positions = (SourcePosition(twice.identity, current='{"logOffset":3}'), SourcePosition(once.identity))
    seen = seen_files.files_table([FileSeen("file:///in/a", 1)])
    made = build_checkpoint((twice, once), positions, {0: [seen]}, 7, {"a": "b"}, "0123456789abcdef" * 2)
    before = made.offsets(7)
    made.add_batch(8, ('{"logOffset":1000000}', '{"epoch": 1}'))
    assert made.offsets(7) == before
    assert made.offsets(8) == ('{"logOffset":1000000}', '{"epoch": 1}')
    assert [made.offset(each, 8) for each in made.sources] == list(made.offsets(8))
    texts = [(Path(made.location.removeprefix("file://")) / "offsets" / name).read_text().split("\n") for name in "78"]
    assert texts[1] == [*texts[0][:2], '{"logOffset":1000000}', '{"epoch": 1}', '{"logOffset":1000000}']
    made.add_batch(9, ('{"logOffset":1000001}', '{"epoch": 1}'))
    names = sorted(each.name for each in (Path(made.location.removeprefix("file://")) / "offsets").iterdir())
    assert names == ["8", "9"], "no more than the driver reads"
    made.remove()
