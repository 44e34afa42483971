import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.state.remote.remote_bytes import PAGE, Place
from dagster_ckpt.state.remote.run_cache import RunCache, RunId, default_folder

SIZE = 64 * PAGE
DATA = np.random.default_rng(7).bytes(SIZE)
FAR_BEYOND = 1 << 40


def run(number: int) -> RunId:
    return RunId("far://store", f"state/groups/{number}.arrow", "100:0123abcd")


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.glob("*.run"))


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.run")}


def absent(place: Place) -> list[tuple[int, int]]:
    return list(place.absent((0, SIZE)))


def lasts(place: Place) -> bool:
    return place.lasting


def wait_for_the_next_tick(folder: Path) -> None:
    """File systems have a coarse clock: what happens within one tick happens at once."""
    probe = folder / "probe"
    probe.touch()
    first = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == first:
        os.utime(probe)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_only_what_was_put_takes_room_and_another_process_finds_it(tmp_path: Path) -> None:
    place = RunCache(tmp_path / "cache", FAR_BEYOND).open(run(1), SIZE)
    assert absent(place) == [(0, SIZE)]
    place.put(8 * PAGE, DATA[8 * PAGE : 10 * PAGE])
    place.put(60 * PAGE, DATA[60 * PAGE :])
    assert on_disk(tmp_path / "cache") == 6 * PAGE

    again = RunCache(tmp_path / "cache", FAR_BEYOND).open(run(1), SIZE)
    assert absent(again) == [(0, 8 * PAGE), (10 * PAGE, 60 * PAGE)]
    assert list(again.absent((9 * PAGE, 11 * PAGE))) == [(10 * PAGE, 11 * PAGE)]
    assert again.data.slice(60 * PAGE).to_pybytes() == DATA[60 * PAGE :]
    assert absent(RunCache(tmp_path / "cache", FAR_BEYOND).open(run(2), SIZE)) == [(0, SIZE)], "each run has its own"


def test_what_one_process_puts_another_sees_in_what_it_has_mapped(tmp_path: Path) -> None:
    one, other = (RunCache(tmp_path / "cache", FAR_BEYOND).open(run(1), SIZE) for _ in range(2))
    one.put(0, DATA)
    assert absent(other) == []
    assert other.data.to_pybytes() == DATA


def test_a_run_that_was_just_written_is_kept_whole(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache", FAR_BEYOND)
    cache.keep(run(1), memoryview(DATA))
    assert cache.open(run(1), SIZE).data.to_pybytes() == DATA
    assert absent(cache.open(run(1), SIZE)) == []


def test_no_other_user_can_read_it(tmp_path: Path) -> None:
    with umask(0):
        RunCache(tmp_path / "some" / "cache", FAR_BEYOND).keep(run(1), memoryview(DATA))
    assert stat.S_IMODE((tmp_path / "some" / "cache").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "some" / "cache").iterdir()} == {0o600}


def test_a_folder_that_is_not_needed_is_not_made(tmp_path: Path) -> None:
    RunCache(tmp_path / "cache", FAR_BEYOND)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(InvalidPipelineError, match=rf"mode 0755; chmod 700 it.*cache_dir.*folder={folder}"):
        RunCache(folder, FAR_BEYOND).open(run(0), SIZE)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InvalidPipelineError, match=rf"belongs to another user.*cache_dir.*folder={tmp_path}"):
        RunCache(tmp_path / "cache", FAR_BEYOND).open(run(0), SIZE)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidPipelineError, match=rf"link.*cache_dir.*folder={tmp_path}/cache"):
        RunCache(tmp_path / "cache", FAR_BEYOND).open(run(0), SIZE)


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(InvalidPipelineError, match="something else of that name"):
        RunCache(tmp_path / "cache", FAR_BEYOND).open(run(0), SIZE)


def test_the_folder_that_is_used_where_none_is_chosen_is_this_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert default_folder() == tmp_path / f"dagster-ckpt-cache-{os.geteuid()}"


def test_the_limit_is_kept_and_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    folder, limit = tmp_path / "cache", 10 * SIZE
    cache = RunCache(folder, limit)
    cache.keep(run(0), memoryview(DATA))
    for number in range(1, 40):
        wait_for_the_next_tick(tmp_path)
        cache.keep(run(number), memoryview(DATA))
        cache.open(run(0), SIZE).use()
        assert on_disk(folder) <= limit
    left = files(folder)
    assert run(0).file in left, "used again and again"
    assert {run(number).file for number in range(34, 40)} <= left
    assert run(20).file not in left
    assert len(left) <= 10


def test_a_run_that_is_used_outlives_those_that_are_only_open(tmp_path: Path) -> None:
    folder, limit = tmp_path / "cache", 10 * SIZE
    cache = RunCache(folder, limit)
    places = []
    for number in range(40):
        wait_for_the_next_tick(tmp_path)
        places.append(cache.open(run(number), SIZE))
        places[-1].put(0, DATA)
        places[0].use()
        assert on_disk(folder) <= limit
    assert lasts(places[0])
    assert lasts(places[39])
    assert not lasts(places[1]), "a reader that has it open sees that it was removed"
    assert [place.data.to_pybytes() == DATA for place in places] == [True] * 40, "and reads it all the same"


def test_a_run_removed_while_it_is_read_can_be_read_to_its_end(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache", FAR_BEYOND)
    place = cache.open(run(0), SIZE)
    place.put(0, DATA[:PAGE])
    RunCache(tmp_path / "cache", PAGE // 2).room_for(0)
    assert files(tmp_path / "cache") == set()
    assert absent(place) == [(PAGE, SIZE)]
    place.put(PAGE, DATA[PAGE:])
    assert place.data.to_pybytes() == DATA
    assert absent(cache.open(run(0), SIZE)) == [(0, SIZE)], "a new file begins empty"


def test_a_run_beyond_the_limit_is_read_all_the_same(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache", SIZE - 1)
    cache.keep(run(0), memoryview(DATA))
    assert files(tmp_path / "cache") == set()
    place = cache.open(run(0), SIZE)
    place.put(0, DATA)
    assert place.data.to_pybytes() == DATA
    assert on_disk(tmp_path / "cache") == 0
    assert not lasts(place), "it is held in uncounted memory: so not for long"


def test_a_full_disk_takes_nothing_from_readers_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = RunCache(tmp_path / "cache", FAR_BEYOND)
    place = cache.open(run(0), SIZE)
    place.put(0, DATA[:PAGE])
    pwrite = os.pwrite

    def half_then_full(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) == 8:
            return pwrite(descriptor, data, offset)  # the count
        if offset % (2 * PAGE) == 0:
            return pwrite(descriptor, data[:PAGE], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with caplog.at_level(logging.WARNING):
        place.put(PAGE, bytes(PAGE))
        place.put(2 * PAGE, DATA[2 * PAGE :])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert f"cache_dir={tmp_path / 'cache'}" in caplog.text
    assert place.data.to_pybytes() == DATA[:PAGE] + bytes(PAGE) + DATA[2 * PAGE :]
    assert not lasts(place)

    monkeypatch.undo()
    place.put(PAGE, DATA[PAGE : 2 * PAGE])
    assert place.data.to_pybytes() == DATA, "a page that was held in memory shows what is put over it"
    assert absent(cache.open(run(0), SIZE)) == [(3 * PAGE, SIZE)]


def test_a_folder_that_was_emptied_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = RunCache(folder, 10 * SIZE)
    place = cache.open(run(0), SIZE)
    place.put(0, DATA)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    cache.keep(run(1), memoryview(DATA))
    assert files(folder) == {run(1).file}
    assert place.data.to_pybytes() == DATA


def test_a_count_that_is_wrong_is_put_right_where_the_limit_is_met(tmp_path: Path) -> None:
    """A process that is killed between the count and the write leaves it too high."""
    folder, limit = tmp_path / "cache", 10 * SIZE
    cache = RunCache(folder, limit)
    for _ in range(5):
        assert cache.room_for(2 * SIZE)
    for number in range(10):
        cache.keep(run(number), memoryview(DATA))
    assert files(folder) == {run(number).file for number in range(10)}
    assert on_disk(folder) == limit
    (folder / "lock").write_bytes(b"no")
    cache.keep(run(10), memoryview(DATA))
    assert on_disk(folder) <= limit


def test_a_smaller_limit_is_met_with_the_first_run(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cache", FAR_BEYOND)
    for number in range(10):
        cache.keep(run(number), memoryview(DATA))
    RunCache(tmp_path / "cache", 3 * SIZE).open(run(10), SIZE)
    assert 0 < on_disk(tmp_path / "cache") <= 3 * SIZE


def test_a_run_found_by_a_new_process_is_one_that_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for number in range(10):
        RunCache(folder, FAR_BEYOND).keep(run(number), memoryview(DATA))
        wait_for_the_next_tick(tmp_path)
    RunCache(folder, FAR_BEYOND).open(run(0), SIZE)
    RunCache(folder, 3 * SIZE).room_for(0)
    assert run(0).file in files(folder)


def test_a_run_that_is_durable_is_never_given_up_for_its_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    cache = RunCache(folder, FAR_BEYOND)
    cache.keep(run(0), memoryview(DATA))
    folder.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        cache.keep(run(1), memoryview(DATA))
        cache.keep(run(2), memoryview(DATA))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "mode 0755" in caplog.text


def test_a_run_whose_use_cannot_be_noted_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    place = RunCache(tmp_path / "cache", FAR_BEYOND).open(run(0), SIZE)
    place.put(0, DATA)
    monkeypatch.setattr(os, "utime", read_only)
    place.use()
    assert place.data.to_pybytes() == DATA
    assert "Read-only file system" in caplog.text


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_where_the_folder_cannot_be_used_runs_are_read_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def no(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    cache = RunCache(tmp_path / "cache", FAR_BEYOND)
    monkeypatch.setattr(os, "mkdir", no)
    for number in range(3):
        place = cache.open(run(number), SIZE)
        place.put(0, DATA)
        assert place.data.to_pybytes() == DATA
        cache.keep(run(number), memoryview(DATA))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert os.strerror(code) in caplog.text
    assert not (tmp_path / "cache").exists()
