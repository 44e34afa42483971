import gc
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.lsm.file.blocks import BLOCK_BYTES
from dagster_ckpt.lsm.file.run_file import encode
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.protocol.manifest.manifest import RunRef
from dagster_ckpt.state import engine as state_engine
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.far_runs import SCHEMA, Reader, reader, same, some_run, stored
from tests.worlds.far_store import FarStore, Request, honest

PATH = "state/groups/some.arrow"
RUN = some_run(100_000)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> FarStore:
    return FarStore(MemoryObjectStore(request.node.name))


def read(reader: Reader, store: FarStore, ref: RunRef) -> Run:
    return reader.runs.run(store, ref, SCHEMA)


def cached(folder: Path) -> Path:
    [file] = folder.glob("*.run")
    return file


def test_a_run_is_the_same_wherever_it_is_stored(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    assert same(OpenRuns().run(store, ref, SCHEMA), RUN), "without a cache"


def test_a_column_that_is_not_requested_is_not_fetched(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    run = read(reader(tmp_path / "cache"), store, ref)
    assert run.columns(["v"]).equals(RUN.columns(["v"]))
    assert store.bytes_read < 8 * len(RUN) + ref.bytes / 10
    assert {request.until is None for request in store.requests} == {False}, "never the whole object at once"


def test_the_end_is_read_first_and_locates_the_rest(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    read(reader(tmp_path / "cache"), store, ref)
    first = store.requests[0]
    assert first.until == ref.bytes
    assert first.start > ref.bytes - 16 * 1024


def test_a_small_run_is_one_request(tmp_path: Path, store: FarStore) -> None:
    small = some_run(1000)
    ref = stored(store, PATH, small)
    assert same(read(reader(tmp_path / "cache"), store, ref), small)
    assert store.requests == [Request(PATH, 0, ref.bytes)]


def test_reading_all_of_a_run_takes_few_requests(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    run = read(reader(tmp_path / "cache"), store, ref)
    assert same(run, RUN)
    assert len(store.requests) <= 8
    assert ref.bytes <= store.bytes_read <= 1.05 * ref.bytes, "and no byte twice, but at the edges"


def test_another_process_asks_the_store_for_nothing(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    store.forget()
    again = reader(tmp_path / "cache")
    assert same(read(again, store, ref), RUN)
    assert store.requests == []
    assert again.traffic.requests == again.traffic.damaged == 0


def test_a_run_that_this_process_wrote_is_never_asked_for(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    writer = reader(tmp_path / "cache")
    writer.runs.keep(store, ref.path, ref.checksum, encode(RUN).data)
    assert same(read(writer, store, ref), RUN)
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    assert store.requests == []


def test_runs_of_a_local_disk_are_not_cached(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "store", lambda: "unique")
    ref = stored(store, PATH, RUN)
    writer = reader(tmp_path / "cache")
    writer.runs.keep(store, ref.path, ref.checksum, encode(RUN).data)
    assert same(writer.runs.run(store, ref, SCHEMA), RUN)
    assert list((tmp_path / "cache").glob("*.run")) == []


def test_a_run_stays_open_while_the_cache_keeps_it(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    process = reader(tmp_path / "cache", limit_bytes=3 * ref.bytes)
    run = read(process, store, ref)
    assert read(process, store, ref) is run
    for number in range(4):
        assert same(read(process, store, stored(store, f"state/groups/{number}.arrow", RUN)), RUN)
    assert read(process, store, ref) is not run
    assert same(run, RUN), "a run that is still held stays readable"


def test_a_run_for_which_the_cache_has_no_room_is_read_all_the_same(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    process = reader(tmp_path / "cache", limit_bytes=4096)
    run = read(process, store, ref)
    assert same(run, RUN)
    assert read(process, store, ref) is run
    held = weakref.ref(run)
    del run
    gc.collect()
    assert held() is None, "its bytes are in memory: they go with the last reader"


def test_bytes_damaged_in_the_cache_are_fetched_again_and_counted(tmp_path: Path, store: FarStore) -> None:
    """Anywhere: each time another piece of the file is damaged, headers and the end among them."""
    ref = stored(store, PATH, RUN)
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    file = cached(tmp_path / "cache")
    intact = file.read_bytes()
    for start in [*range(0, ref.bytes, ref.bytes // 40), ref.bytes - 10]:
        with file.open("r+b") as opened:
            opened.seek(start)
            opened.write(bytes(byte ^ 0xFF for byte in intact[start : start + 5]))
        store.forget()
        process = reader(tmp_path / "cache")
        assert same(read(process, store, ref), RUN)
        assert process.traffic.damaged == len(store.requests) == 1, start
        assert store.bytes_read <= max(BLOCK_BYTES, ref.bytes - store.requests[0].start)
        assert file.read_bytes() == intact, "and the cache is whole again"


def test_a_block_that_was_half_written_is_fetched_again(tmp_path: Path, store: FarStore) -> None:
    """What a process leaves that is killed while it writes."""
    ref = stored(store, PATH, RUN)
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    file = cached(tmp_path / "cache")
    intact = file.read_bytes()
    file.unlink()
    with file.open("wb") as opened:
        opened.truncate(ref.bytes)
        opened.seek(10 * BLOCK_BYTES)
        opened.write(intact[10 * BLOCK_BYTES : 12 * BLOCK_BYTES + 777])
    store.forget()
    assert same(read(reader(tmp_path / "cache"), store, ref), RUN)
    assert ref.bytes - 2 * BLOCK_BYTES <= store.bytes_read <= 1.05 * ref.bytes


def test_bytes_damaged_in_the_store_are_an_error_that_names_all_there_is_to_know(
    tmp_path: Path, store: FarStore
) -> None:
    file = encode(RUN)
    damaged = bytearray(file.data)
    damaged[20 * BLOCK_BYTES + 5] ^= 1
    ref = stored(store, PATH, RUN)
    store.delete(PATH)
    assert store.put_if_absent(PATH, bytes(damaged))
    process = reader(tmp_path / "cache")
    with pytest.raises(CorruptStateError, match=rf"file={PATH}, block=20, bytes=\d+\.\.\d+, store=far\+memory:"):
        same(read(process, store, ref), RUN)
    store.delete(PATH)
    assert store.put_if_absent(PATH, memoryview(file.data))
    assert same(read(process, store, ref), RUN), "once it is put right, nothing of the damage is left here"


def test_an_end_damaged_in_the_store_is_an_error(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    store.spoil = lambda request, answer: answer[:-20] + bytes(20) if request.until == ref.bytes else answer
    with pytest.raises(CorruptStateError, match=rf"the end of a state file is damaged.*file={PATH}.*store=far\+memory"):
        read(reader(tmp_path / "cache"), store, ref)


def test_a_store_that_does_not_answer_is_asked_again_by_the_next_try(tmp_path: Path, store: FarStore) -> None:
    ref = stored(store, PATH, RUN)
    process = reader(tmp_path / "cache")
    answers = iter([True] * 3 + [False] * 2 + [True] * 100)

    def moody(request: Request, answer: bytes) -> bytes:
        if next(answers):
            return answer
        raise StoreUnavailableError("the test's store did not answer: try again.")

    store.spoil = moody
    failures = 0
    for _ in range(3):
        try:
            assert same(read(process, store, ref), RUN)
        except StoreUnavailableError:
            failures += 1
    assert failures == 2


def test_two_streams_of_one_name_never_meet(tmp_path: Path, store: FarStore) -> None:
    """A stream that was removed and begun again may use the path of a file again."""
    first = stored(store, PATH, RUN)
    process = reader(tmp_path / "cache")
    assert same(read(process, store, first), RUN)
    store.delete(PATH)
    other = some_run(100_000, seed=1)
    second = stored(store, PATH, other)
    assert same(read(process, store, second), other)
    assert not same(other, RUN)


def test_few_runs_of_a_far_store_are_open_at_once(
    tmp_path: Path, store: FarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes file descriptors, of which a process often has no more than 1024."""
    monkeypatch.setattr(state_engine, "_FAR_MAX", 3)
    process = reader(tmp_path / "cache")
    small = some_run(10)
    refs = [stored(store, f"state/groups/{number}.arrow", small) for number in range(10)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for ref in refs:
        read(process, store, ref)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3 * 2
    assert read(process, store, refs[-1]) is read(process, store, refs[-1])


def damaged(_: Request, answer: bytes) -> bytes:
    return bytes(byte ^ 1 for byte in answer)


def column_v(run: Run, *rows: int) -> list[int]:
    column = run.columns_at(["v"], np.array(rows))[0].whole()
    return [column[row].as_py() for row in rows]


BLOCK_ROWS = BLOCK_BYTES // 8
HERE = 50_000
V_HERE = RUN.columns(["v"])["v"][HERE].as_py()
AROUND = HERE - BLOCK_ROWS, HERE + BLOCK_ROWS


@pytest.mark.parametrize("with_cache", [True, False])
def test_what_was_checked_is_not_written_over_when_its_neighbours_are_read(
    tmp_path: Path, store: FarStore, with_cache: bool
) -> None:
    ref = stored(store, PATH, RUN)
    runs = reader(tmp_path / "cache").runs if with_cache else OpenRuns()
    run = runs.run(store, ref, SCHEMA)
    assert column_v(run, HERE) == [V_HERE]
    store.spoil = damaged
    with pytest.raises(CorruptStateError):
        column_v(run, *AROUND)
    assert column_v(run, HERE) == [V_HERE]


@pytest.mark.parametrize("asked", [(HERE,), AROUND])
def test_what_another_process_has_checked_is_not_written_over_by_what_comes_damaged(
    tmp_path: Path, store: FarStore, asked: tuple[int, ...]
) -> None:
    ref = stored(store, PATH, RUN)
    mine, others = (read(reader(tmp_path / "cache"), store, ref) for _ in range(2))
    assert mine is not others

    def meanwhile(request: Request, answer: bytes) -> bytes:
        store.spoil = honest
        assert column_v(mine, HERE) == [V_HERE]
        store.spoil = damaged
        return damaged(request, answer)

    store.spoil = meanwhile
    with suppress(CorruptStateError):
        column_v(others, *asked)
    assert column_v(mine, HERE) == [V_HERE]


def test_runs_are_opened_side_by_side_with_the_requests_of_one_after_the_other(tmp_path: Path, store: FarStore) -> None:
    refs = [stored(store, f"a/{number}", some_run(20_000, number)) for number in range(6)]
    one_by_one = reader(tmp_path / "one")
    for ref in refs:
        read(one_by_one, store, ref)
    each = len(store.requests)

    store.forget()
    store.latency_s = 0.02
    process = reader(tmp_path / "cache")
    runs = process.runs.side_by_side(store, refs, SCHEMA)
    assert store.at_once_max > 1
    assert len(store.requests) == each == process.traffic.requests
    store.forget()
    assert all(read(process, store, ref) is run for ref, run in zip(refs, runs, strict=True))
    assert list(process.runs.side_by_side(store, refs, SCHEMA)) == []
    assert store.requests == []


def test_a_damaged_run_among_several_is_an_error_and_the_others_open_later(tmp_path: Path, store: FarStore) -> None:
    refs = [stored(store, f"a/{number}", some_run(20_000, number)) for number in range(3)]
    store.spoil = lambda request, answer: damaged(request, answer) if request.name == "a/1" else answer
    process = reader(tmp_path / "cache")
    with pytest.raises(CorruptStateError, match="file=a/1"):
        process.runs.side_by_side(store, refs, SCHEMA)
    store.spoil = honest
    assert len(process.runs.side_by_side(store, refs, SCHEMA)) == 3


def test_without_a_cache_runs_opened_side_by_side_last_as_long_as_they_are_held(store: FarStore) -> None:
    refs = [stored(store, f"a/{number}", some_run(20_000, number)) for number in range(3)]
    runs = OpenRuns()
    held = runs.side_by_side(store, refs, SCHEMA)
    store.forget()
    assert all(runs.run(store, ref, SCHEMA) is run for ref, run in zip(refs, held, strict=True))
    assert store.requests == []
