from dataclasses import replace

import pytest

from dagster_ckpt.ids import Epoch, Shard, StreamUuid, Version
from dagster_ckpt.protocol.epochs.retention import files_named, is_cut_off, log_bound, log_named, log_start
from dagster_ckpt.protocol.epochs.subscriber import Subscriber, decode_subscriber, encode_subscriber, least_consumed
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, ChangeRef, Manifest, SourceIdentity, SourcePosition
from tests.worlds.manifests import a_change, a_manifest, a_run

ME, OTHER = StreamUuid("a" * 32), StreamUuid("b" * 32)
SUBSCRIBER = Subscriber("late_carriers", StreamUuid("c" * 32), Epoch(7))


def at_epoch(epoch: int) -> Manifest:
    return replace(a_manifest(), version=Version(epoch), epoch=Epoch(epoch))


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [((), 50), ((30,), 30), ((30, 20, 70), 20), ((70,), 50), ((50,), 50), ((0,), 1)],
)
def test_the_log_stays_from_what_the_slowest_subscriber_has_consumed(consumed: tuple[int, ...], expected: int) -> None:
    assert log_bound(Version(50), map(Epoch, consumed)) == expected


def test_of_what_a_subscriber_may_go_back_to_no_more_is_kept_than_the_lag_that_it_may_have() -> None:
    assert log_start(at_epoch(100), Epoch(95), max_lag=10) == 95
    assert log_start(at_epoch(100), Epoch(20), max_lag=10) == 90
    assert log_start(at_epoch(3), Epoch(0), max_lag=10) == 0


def test_a_subscriber_is_cut_off_only_beyond_the_lag_that_it_may_have() -> None:
    assert not is_cut_off(at_epoch(100), Epoch(90), max_lag=10)
    assert is_cut_off(at_epoch(100), Epoch(89), max_lag=10)
    assert not is_cut_off(at_epoch(100), Epoch(120), max_lag=10), "the stream went back to before it"


def test_a_log_that_is_a_run_of_state_stays_and_all_other_state_goes() -> None:
    run = ChangeRef("state/total/00000-of-00002/1-5-0-0.arrow", 1, 1, "x", Epoch(5), Shard(0), ChangeKind.RUN)
    file = a_change(1, 5, 1)
    ref = replace(file, path="changes/1-1-0-0.parquet", ancestor=OTHER)
    manifest = a_manifest(runs={"total": ((a_run(1, 4, 0),), (), (), ())}, changes=(run, file, ref))
    assert log_named(manifest) == {run.path, file.path}
    assert files_named(manifest) > log_named(manifest), "there is other state"


def test_the_progress_of_a_subscriber_is_in_its_manifest() -> None:
    def read(stream: str, uuid: StreamUuid, epoch: int, way: str = "table") -> SourcePosition:
        return SourcePosition(
            SourceIdentity(FORMAT, stream, (("read", way),)), UpstreamPosition(uuid, Epoch(epoch)).encode()
        )

    def consumed(*sources: SourcePosition) -> Epoch:
        return least_consumed(a_manifest(sources=sources), ME, begins=Epoch(60))

    theirs, mine = read("other", OTHER, 3), read("me", ME, 41)
    assert consumed(theirs, mine) == 41
    assert consumed(theirs) == 60, "it has nothing of this stream"
    assert consumed(theirs, read("me", ME, 0)) == 60
    assert consumed(mine, read("me", ME, 40, "changes")) == 40
    assert consumed(mine, read("me", ME, 0, "changes")) == 41, "the other way goes on behind what it has read"


def test_a_subscriber_survives_its_bytes() -> None:
    assert decode_subscriber(encode_subscriber(SUBSCRIBER), "subscribers/c.json") == SUBSCRIBER
