import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.protocol.manifest.manifest import FileSeen, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.micro_batch import seen_files, spark_checkpoint
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
        spark_checkpoint.build_checkpoint((source,), (position,), {0: damaged()}, 3, {}, "0123456789abcdef" * 2)
    assert [file.name for file in process_folder().iterdir()] == ["lock"]
