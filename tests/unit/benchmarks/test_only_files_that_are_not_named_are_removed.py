from dataclasses import replace
from pathlib import Path

from benchmarks.retired import RetiredFiles
from dagster_ckpt.protocol.manifest.manifest import Manifest
from tests.worlds.manifests import a_change, a_manifest, a_run


def showing(folder: Path, epoch: int, *epochs: int) -> Manifest:
    """An epoch whose first shard has the runs of these epochs; its files are there."""
    manifest = replace(
        a_manifest(),
        runs={"total": (tuple(a_run(1, each, 0) for each in epochs), (), (), ())},
        changes=(a_change(1, epoch, 0),),
    )
    for path in (a_run(1, epoch, 0).path, a_change(1, epoch, 0).path):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return manifest


def test_a_file_goes_one_epoch_after_the_last_that_named_it(tmp_path: Path) -> None:
    stream = tmp_path / "store/totals"
    retired = RetiredFiles(tmp_path / "store")

    def runs() -> list[str]:
        return sorted(path.name for path in stream.glob("state/*/*/*"))

    def changes() -> list[str]:
        return sorted(path.name for path in stream.glob("changes/*"))

    retired.seen(showing(stream, 1, 1))
    retired.seen(showing(stream, 2, 2, 1))
    retired.seen(showing(stream, 3, 3))  # it has merged the two others
    assert runs() == ["1-1-0-0.arrow", "1-2-0-0.arrow", "1-3-0-0.arrow"]
    assert changes() == ["1-2-0-0.parquet", "1-3-0-0.parquet"]
    retired.seen(showing(stream, 4, 4, 3))
    assert runs() == ["1-3-0-0.arrow", "1-4-0-0.arrow"]
    assert changes() == ["1-3-0-0.parquet", "1-4-0-0.parquet"]


def test_the_files_of_a_table_that_only_grows_stay(tmp_path: Path) -> None:
    stream = tmp_path / "store/totals"
    retired = RetiredFiles(tmp_path / "store")
    for epoch in range(1, 5):
        manifest = showing(stream, epoch, epoch)
        retired.seen(replace(manifest, runs={}, pipeline=replace(manifest.pipeline, appends=True)))
    assert len(list(stream.glob("changes/*"))) == 4
