from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import Shard
from dagster_ckpt.runtime.micro_batch.epoch_driver import final_error
from dagster_ckpt.runtime.task.ack_rows import ShardDecline
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions, check_cache
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.far_store import FarStore

FAR = FarStore(MemoryObjectStore("a cache is looked at"))


def options(folder: Path) -> EngineOptions:
    return EngineOptions(cache=CacheOptions(str(folder)))


def open_to_others(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipelineError, match=f"folder={tmp_path}"):
        check_cache(options(open_to_others(tmp_path / "cache")), FAR)


def test_a_folder_that_is_in_order_or_not_there_is_left_as_it_is(tmp_path: Path) -> None:
    check_cache(options(tmp_path / "cache"), FAR)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cache").mkdir(mode=0o700)
    check_cache(options(tmp_path / "cache"), FAR)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_unused_folder_is_not_checked(tmp_path: Path) -> None:
    folder = open_to_others(tmp_path / "cache")
    check_cache(options(folder), LocalObjectStore(tmp_path, SystemClock().unique))
    check_cache(EngineOptions(cache=None), FAR)


@pytest.mark.parametrize("kind", [CorruptStateError, IncompatibleStateError, InvalidPipelineError])
def test_a_final_refusal_of_a_worker_is_not_retried(kind: type[Exception]) -> None:
    replies = [ShardDecline(Shard(0), "h", "OSError", "no"), ShardDecline(Shard(1), "h", kind.__name__, "for good")]
    final = final_error(replies)
    assert type(final) is kind
    assert str(final) == "for good"
    assert final_error(replies[:1]) is None
