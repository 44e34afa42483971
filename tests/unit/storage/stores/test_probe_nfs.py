from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores import probe
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.probe import prove_atomic_create, unsafe_options

ROOT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"
NFS = (
    "90 22 0:45 / {} rw,relatime shared:7 - nfs4 server:/export rw,vers=4.2,{},proto=tcp,local_lock=none,addr=10.0.0.1"
)
FOLDER = Path("/data/checkpoints/a")


def mounts(*options: str, point: str = "/data") -> str:
    return "\n".join([ROOT, *(NFS.format(point, each) for each in options)]) + "\n"


@pytest.mark.parametrize("options", ["hard,lookupcache=none", "hard,noac", "hard,acregmin=0,acdirmin=0,acdirmax=0"])
def test_a_hard_mount_that_asks_for_each_name_is_safe(options: str) -> None:
    assert unsafe_options(mounts(options), FOLDER) == {}


@pytest.mark.parametrize(
    ("options", "unsafe"),
    [
        ("hard", ["lookupcache=all"]),
        ("hard,lookupcache=pos", ["lookupcache=pos"]),
        ("soft,lookupcache=none", ["soft"]),
        ("softerr,noac", ["softerr"]),
        ("hard,nocto,lookupcache=none", ["nocto"]),
        ("soft,nocto", ["soft", "nocto", "lookupcache=all"]),
    ],
)
def test_an_unsafe_option_is_named(options: str, unsafe: list[str]) -> None:
    assert list(unsafe_options(mounts(options), FOLDER)) == unsafe


def test_other_file_systems_and_other_folders_have_no_say() -> None:
    assert unsafe_options(ROOT, FOLDER) == {}
    assert unsafe_options(mounts("soft"), Path("/database")) == {}
    assert unsafe_options(mounts("soft", point="/data/other"), FOLDER) == {}
    below = mounts("soft") + "91 90 254:1 / /data/checkpoints rw - xfs /dev/vdb rw\n"
    assert unsafe_options(below, FOLDER) == {}


def test_the_last_mount_in_one_place_counts_and_a_space_in_its_name_is_read() -> None:
    assert unsafe_options(mounts("soft", "hard,noac"), FOLDER) == {}
    assert list(unsafe_options(mounts("soft,noac", point="/my\\040data"), Path("/my data/a"))) == ["soft"]


def test_a_writer_is_refused_before_it_writes_and_a_reader_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "mountinfo"
    listed.write_text(mounts("soft", point=str(tmp_path)))
    monkeypatch.setattr(probe, "_MOUNTS", listed)
    store = open_store(f"file://{tmp_path}/store")
    with pytest.raises(InvalidPipelineError, match=r"hard,lookupcache=none .*\(soft: .*; lookupcache=all: .*folder="):
        prove_atomic_create(store, SystemClock())
    assert not (tmp_path / "store").exists()
    assert list(store.list("")) == []
