"""Rule 15: damage is an error that names the file and the newest epoch that does not need it, never a wrong answer."""

import shlex
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.history.damage.damage_advice import with_advice
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from tests.unit.history.made_streams import MadeStream, append, departures

NAME = "delays"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / NAME


@pytest.fixture
def keyed(tmp_path: Path) -> list[int]:
    """A keyed stream's epochs; each changes both shards."""
    stream = MadeStream(tmp_path.as_uri(), NAME)
    epochs = [stream.commit(departures({"UA": [delay], "AA": [delay]})) for delay in range(3)]
    stream.close()
    return epochs


@pytest.fixture
def appended(tmp_path: Path) -> list[int]:
    stream = MadeStream(tmp_path.as_uri(), NAME, append())
    epochs = [stream.commit(departures({"UA": [delay], "AA": [delay]})) for delay in range(3)]
    stream.close()
    return epochs


def history(folder: Path) -> StreamHistory:
    return CheckpointStore(folder.parent.as_uri()).stream(NAME)


def flip(path: Path, at: int = 200) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def of_epoch(folder: Path, below: str, epoch: int) -> Path:
    return next(path for path in sorted((folder / below).rglob(f"1-{epoch}-*")))


def test_a_flipped_bit_in_a_run(folder: Path, keyed: list[int]) -> None:
    damaged = of_epoch(folder, "state", keyed[1])
    for at in range(0, damaged.stat().st_size, 97):
        flip(damaged, at)
        with pytest.raises(CorruptStateError) as error:
            history(folder).read(keyed[1])
        assert str(damaged.relative_to(folder)) in str(error.value)
        assert f"good_epoch={keyed[0]}" in str(error.value)
        flip(damaged, at)
    assert history(folder).read(keyed[1]).num_rows == 2


def test_a_missing_run(folder: Path, keyed: list[int]) -> None:
    missing = of_epoch(folder, "state", keyed[2])
    missing.unlink()
    with pytest.raises(
        CorruptStateError,
        match=f"good_epoch={keyed[1]}, go_back=.*rollback delays --epoch {keyed[1]}\".*from_epoch: {keyed[1]}'$",
    ) as error:
        history(folder).read()
    assert str(missing.relative_to(folder)) in str(error.value)
    assert history(folder).read(keyed[1]).num_rows == 2


def test_a_run_that_the_disk_refuses_is_no_damage(folder: Path, keyed: list[int]) -> None:
    refused = of_epoch(folder, "state", keyed[2])
    refused.unlink()
    refused.mkdir()
    with pytest.raises(StoreUnavailableError, match="try again") as error:
        history(folder).read()
    assert str(refused.relative_to(folder)) in str(error.value)


def test_a_run_that_all_epochs_need_leaves_no_good_one(folder: Path, keyed: list[int]) -> None:
    of_epoch(folder, "state", keyed[0]).unlink()
    with pytest.raises(CorruptStateError, match=r"good_epoch=none, begin_anew=.*rollback delays --epoch 0\""):
        history(folder).read()


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_damaged_file_of_an_append_only_table(folder: Path, appended: list[int], damage: object) -> None:
    damaged = of_epoch(folder, "changes", appended[1])
    damage(damaged)  # type: ignore[operator]
    with pytest.raises(CorruptStateError, match=f"good_epoch={appended[0]}, go_back=") as error:
        history(folder).read()
    assert damaged.name in str(error.value)
    assert history(folder).read(appended[0]).num_rows == 2


def test_a_damaged_index_object(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 4)
    stream = MadeStream(tmp_path.as_uri(), NAME, append())
    epochs = [stream.commit(departures({"UA": [delay], "AA": [delay]})) for delay in range(4)]
    stream.close()
    [index] = stream.writer.manifest.files.index
    flip(folder / index.path, 40)
    with pytest.raises(CorruptStateError, match=f"good_epoch={epochs[2]}, go_back=") as error:
        history(folder).read()
    assert index.path in str(error.value)


def test_a_damaged_manifest_of_an_older_epoch(folder: Path, keyed: list[int]) -> None:
    flip(folder / f"manifest/{keyed[1]:020d}.json", 40)
    with pytest.raises(
        CorruptStateError, match=rf"manifest/0+{keyed[1]}\.json.*good_epoch={keyed[2]}, current={keyed[2]}$"
    ):
        history(folder).read(keyed[1])
    assert history(folder).read().num_rows == 2


def test_a_damaged_newest_manifest_names_the_newest_that_can_be_read(folder: Path, keyed: list[int]) -> None:
    flip(folder / f"manifest/{keyed[2]:020d}.json", 40)
    for ask in (StreamHistory.latest, StreamHistory.epochs, StreamHistory.read):
        with pytest.raises(CorruptStateError, match=rf"manifest/0+{keyed[2]}\.json.*good_epoch={keyed[1]}, go_back="):
            ask(history(folder))


def test_an_epoch_named_by_its_number_is_read_although_the_newest_manifest_is_damaged(
    folder: Path, keyed: list[int]
) -> None:
    flip(folder / f"manifest/{keyed[2]:020d}.json", 40)
    assert history(folder).read(keyed[1])["flights"].to_pylist() == [2, 2]
    assert not history(folder).info(keyed[1]).current
    with pytest.raises(CorruptStateError, match=f"good_epoch={keyed[1]}"):
        history(folder).read(keyed[2])
    with pytest.raises(CorruptStateError, match=f"good_epoch={keyed[1]}"):
        history(folder).read(as_of="9999-01-01")


def test_a_missing_newest_manifest_is_found_by_its_writers_lease(folder: Path, keyed: list[int]) -> None:
    (folder / f"manifest/{keyed[2]:020d}.json").unlink()
    with pytest.raises(CorruptStateError, match=rf"manifest/0+{keyed[2]}\.json.*good_epoch={keyed[1]}, go_back="):
        history(folder).read()


def test_the_command_that_an_error_names_is_one_that_a_shell_understands(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "flights of 2013/it's $late")
    epochs = [stream.commit(departures({"UA": [delay]})) for delay in range(2)]
    stream.close()
    flip(tmp_path / folder_of(["flights of 2013", "it's $late"]) / f"manifest/{epochs[1]:020d}.json", 40)
    with pytest.raises(CorruptStateError) as error:
        CheckpointStore(tmp_path.as_uri()).stream("flights of 2013/it's $late").latest()
    command = str(error.value).partition("go_back=")[2].rpartition(", run_config=")[0].strip('"')
    words = ["dagster-ckpt", "--store", tmp_path.as_uri(), "rollback", stream.name, "--epoch", str(epochs[0])]
    assert shlex.split(command) == words


def test_where_no_manifest_can_be_read_there_is_no_epoch_to_go_back_to(folder: Path, keyed: list[int]) -> None:
    for path in (folder / "manifest").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CorruptStateError, match=r"restore its folder from a backup.*good_epoch=none$"):
        history(folder).latest()


def test_a_damaged_index_object_of_a_source_is_needed_by_the_next_writer(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 2)
    stream = MadeStream(tmp_path.as_uri(), NAME)
    epochs = [stream.commit(departures({"UA": [delay]})) for delay in range(4)]
    stream.close()
    [index] = stream.writer.manifest.sources[0].files.index
    chain = ManifestChain(stream.writer.store, SystemClock())
    error = CorruptStateError(f"an index object is damaged. object={index.path}")
    assert f"good_epoch={epochs[1]}, go_back=" in str(with_advice(open_store(stream.url), chain, NAME, error))
