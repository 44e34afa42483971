"""Where the streams stand is read from the store, and says when nothing moves."""

from pathlib import Path

import pytest

from dagster_ckpt import CheckpointStore
from demo.standing import Standing, standing
from demo.watch import Watch


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path.as_uri())


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> dict[str, Standing]:
    """What the store will say at the next look."""
    said = {"a": Standing(), "b": Standing()}
    monkeypatch.setattr("demo.watch.standing", lambda _, stream: said[stream])
    return said


def test_a_stream_that_was_never_opened_has_no_position(store: CheckpointStore) -> None:
    assert standing(store, "departures") == Standing()


def test_streams_have_begun_when_each_has_committed(store: CheckpointStore, stands: dict[str, Standing]) -> None:
    watch = Watch(store, ["a", "b"], now_s=0.0)
    stands["a"] = Standing(epoch=2, epochs=1, rows=10, days=1)
    watch.look(1.0)
    assert not watch.began(["a", "b"])
    assert watch.began(["a"])
    stands["b"] = Standing(epoch=2, epochs=1, rows=10, days=2)
    watch.look(2.0)
    assert watch.began(["a", "b"])


def test_it_is_through_when_the_slowest_is(store: CheckpointStore, stands: dict[str, Standing]) -> None:
    watch = Watch(store, ["a", "b"], now_s=0.0)
    stands |= {"a": Standing(2, 1, 10, 365), "b": Standing(2, 1, 10, 364)}
    watch.look(1.0)
    assert (watch.through(364), watch.through(365)) == (True, False)


def test_one_that_reads_another_has_come_as_far_as_what_it_has_read(
    store: CheckpointStore, stands: dict[str, Standing]
) -> None:
    watch = Watch(store, ["a", "b"], now_s=0.0)
    stands |= {"a": Standing(2, 1, 10, 14), "b": Standing(2, 1, 3, consumed=(("a", 2),))}
    watch.look(1.0)
    assert watch.standings["b"].days == 14
    stands["a"] = Standing(5, 4, 30, 30)
    watch.look(2.0)
    assert (watch.through(14), watch.through(30)) == (True, False)
    stands["b"] = Standing(3, 2, 6, consumed=(("a", 4),))
    watch.look(3.0)
    assert watch.standings["b"].days == 14, "nobody has seen epoch 4"
    stands["b"] = Standing(4, 3, 9, consumed=(("a", 5),))
    watch.look(4.0)
    assert watch.through(30)


def test_only_a_new_epoch_counts_as_a_move(store: CheckpointStore, stands: dict[str, Standing]) -> None:
    watch = Watch(store, ["a", "b"], now_s=0.0)
    stands["a"] = Standing(epoch=2, epochs=1, rows=10, days=1)
    watch.look(5.0)
    watch.look(9.0)
    assert watch.moved_s == 5.0


def test_the_rate_counts_the_rows_after_the_first_epoch(store: CheckpointStore, stands: dict[str, Standing]) -> None:
    watch = Watch(store, ["a"], now_s=0.0)
    stands["a"] = Standing(epoch=2, epochs=1, rows=1_000, days=1)
    watch.look(10.0)
    assert watch.rows_per_second("a") == 0.0
    stands["a"] = Standing(epoch=5, epochs=4, rows=3_000, days=4)
    watch.look(14.0)
    watch.look(20.0)
    assert watch.rows_per_second("a") == 500.0
