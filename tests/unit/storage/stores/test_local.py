"""What only a store on disk can get wrong: crashes, fsync, races of processes, permissions, full disks."""

import errno
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.local import LocalObjectStore
from tests.worlds.disk import folder_on_disk

# A plain fork: the children only make system calls and leave by _exit.
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_on_disk() as folder:
        yield folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "made" / "later"


@pytest.fixture
def store(root: Path) -> LocalObjectStore:
    return LocalObjectStore(root, SystemClock().unique)


def _files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def _in_a_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its exit status."""
    child = FORK.Process(target=work)
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode


def test_nothing_is_made_before_the_first_write(root: Path, store: LocalObjectStore) -> None:
    assert list(store.list("")) == []
    assert not store.exists("a")
    assert not root.exists()


def test_exactly_one_of_many_processes_creates_an_object(root: Path) -> None:
    processes, rounds = 4, 20
    together = FORK.Barrier(processes)
    won = FORK.Array("i", [0] * rounds)

    def race() -> None:
        store = LocalObjectStore(root, SystemClock().unique)
        for number in range(rounds):
            together.wait(timeout=120)
            if store.put_if_absent(f"race/{number}", b"%d" % os.getpid()):
                with won.get_lock():
                    won[number] += 1

    children = [FORK.Process(target=race) for _ in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * processes
    assert won[:] == [1] * rounds
    assert len(_files(root)) == rounds


@pytest.mark.parametrize(
    ("call", "created"),
    [("link", False), ("unlink", True), ("fsync", False)],
    ids=["killed before the link", "killed after the link", "killed before the file is durable"],
)
def test_a_kill_in_the_middle_of_a_create_leaves_all_or_nothing(
    root: Path, store: LocalObjectStore, call: str, created: bool
) -> None:
    def create_and_die() -> None:
        # In the child alone: here a thread that an earlier test has left may make the same call.
        setattr(os, call, lambda *_, **__: os._exit(9))
        store.put_if_absent("m/a", b"whole")

    store.put("m/other", b"")
    assert _in_a_child(create_and_die) == 9

    assert len([name for name in _files(root) if "/." in name]) == 1, "the child left no temporary file"
    assert store.exists("m/a") is created
    assert set(store.list("")) == ({"m/a", "m/other"} if created else {"m/other"})
    assert store.put_if_absent("m/a", b"whole") is not created
    assert store.get("m/a") == b"whole"


def test_the_file_is_durable_before_it_has_its_name_and_every_new_folder_is_durable_before_the_create_returns(
    root: Path, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def saw(call: str, path: object) -> None:
        # A thread that an earlier test has left may make the same calls.
        if threading.current_thread() is threading.main_thread():
            calls.append((call, str(path)))

    def watched_fsync(descriptor: int) -> None:
        saw("fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def watched_link(source: Path, target: Path) -> None:
        saw("link", target)
        link(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    store.put_if_absent("a/b/c", b"x")

    linked = calls.index(("link", str(root / "a/b/c")))
    before = [path for _, path in calls[:linked]]
    assert before[-1].startswith(str(root / "a/b/."))
    assert {str(root.parent.parent), str(root.parent), str(root), str(root / "a")} <= set(before)
    assert ("fsync", str(root / "a/b")) in calls[linked:]


def test_a_folder_that_a_dead_process_made_is_made_durable_too(
    root: Path, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a/b").mkdir(parents=True)
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    store.put_if_absent("a/b/c", b"x")
    assert {str(root / "a/b"), str(root / "a"), str(root)} <= set(synced)
    synced.clear()
    store.put_if_absent("a/b/d", b"x")
    assert str(root) not in synced, "once per process is enough"
    synced.clear()
    store.settle("a/b")
    assert str(root / "a/b") in synced


def test_a_folder_removed_and_made_again_is_made_durable_again(root: Path, store: LocalObjectStore) -> None:
    store.put("a/b/c", b"x")
    for folder in ["a/b", "a"]:
        for file in (root / folder).iterdir():
            file.unlink()
        (root / folder).rmdir()
    store.put("a/b/c", b"y")
    assert store.get("a/b/c") == b"y"


def test_a_file_whose_fsync_failed_is_abandoned_and_a_new_one_is_written_next_time(
    root: Path, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("m/other", b"")

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(
            StoreUnavailableError, match=r"check it before you try again\. reason=Input/output error, file="
        ):
            store.put_if_absent("m/a", b"x")
    assert _files(root) == ["m/other"]
    assert store.put_if_absent("m/a", b"x") is True


def test_a_create_whose_folder_was_not_made_durable_is_not_answered(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("m/other", b"")
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", only_files)
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent("m/a", b"x")
    assert store.put_if_absent("m/a", b"x") is False, "its outcome is unknown, and found out by reading"
    assert store.get("m/a") == b"x"


def test_a_link_that_was_made_though_its_answer_was_lost_is_a_win(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lost_reply(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", lost_reply)
    assert store.put_if_absent("a", b"x") is True
    monkeypatch.undo()
    assert store.put_if_absent("a", b"y") is False


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space on the disk"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EACCES, "give this process's user the permission"),
        (errno.EROFS, "mount it writable"),
        (errno.EIO, "the disk reports an error"),
        (errno.ESTALE, "see what is wrong"),
    ],
)
def test_a_disk_error_names_the_reason_and_what_to_do(
    root: Path, store: LocalObjectStore, number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("m/a", b"x")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ["open", "mkdir", "unlink", "stat"]:
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    work: list[Callable[[], object]] = [
        lambda: store.put("m/b", b"x"),
        lambda: store.put_if_absent("m/b", b"x"),
        lambda: store.get("m/a"),
        lambda: store.get_range("m/a", 0, 1),
        lambda: store.exists("m/a"),
        lambda: store.delete("m/a"),
        lambda: list(store.list("m")),
    ]
    for attempt in work:
        with pytest.raises(StoreUnavailableError, match=rf"{advice}.* reason=.*, file={root}"):
            attempt()


def test_a_file_system_without_hard_links_is_refused(store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(InvalidPipelineError, match="has no hard links"):
        store.put_if_absent("a", b"x")
    assert list(store.list("")) == []


def test_files_of_others_in_the_folder_are_no_objects(root: Path, store: LocalObjectStore) -> None:
    store.put("a", b"x")
    (root / ".DS_Store").write_bytes(b"")
    (root / "a note.txt").write_bytes(b"")
    (root / ".hidden").mkdir()
    assert list(store.list("")) == ["a"]
    assert list(store.folders("")) == []


def test_permissions_are_those_the_administrator_chose(root: Path, store: LocalObjectStore) -> None:
    old = os.umask(0o027)
    try:
        store.put_if_absent("a/b", b"x")
    finally:
        os.umask(old)
    assert (root / "a/b").stat().st_mode & 0o777 == 0o640
    assert (root / "a").stat().st_mode & 0o777 == 0o750


def test_what_a_killed_write_left_is_discarded_once_it_is_old(root: Path, store: LocalObjectStore) -> None:
    store.put("a/b", b"x")
    killed, at_work = root / "a" / f".{'0' * 32}.tmp", root / f".{'1' * 32}.tmp"
    foreign = root / ".hidden"
    for file in (killed, at_work, foreign):
        file.write_bytes(b"")
    os.utime(killed, (1, 1))
    os.utime(foreign, (1, 1))
    assert store.discard_leftovers("", store.modified_ms("a/b")) == 1
    assert not killed.exists()
    assert at_work.exists()
    assert foreign.exists()
    assert store.get("a/b") == b"x"
