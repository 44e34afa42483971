"""The end of the task of a step that another one follows: its files become durable while its changes are taken."""

from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import TaskState
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.worlds.graph_stream import GraphStream
from tests.worlds.several_steps import shops_counted

ROWS = pa.table({"order": [f"o{n}" for n in range(99)], "shop": ["s"] * 99, "amount": [1] * 99})


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the tasks have done, in order."""
    done: list[str] = []
    write, wait = TaskState.write, TaskState.flush

    def written(self: TaskState) -> None:
        done.append("write")
        write(self)

    def waited(self: TaskState) -> object:
        done.append("flush")
        return wait(self)

    monkeypatch.setattr(TaskState, "write", written)
    monkeypatch.setattr(TaskState, "flush", waited)
    return done


def a_stream(tmp_path: Path, limit_bytes: int) -> GraphStream:
    engine = Engine(SystemClock(), budget=MemoryBudget(limit_bytes))
    return GraphStream(StoreAddress(tmp_path.as_uri()), "shops", shops_counted(), engine)


def end_of_a_step(stream: GraphStream, order: list[str]) -> list[str]:
    """What the tasks of the first step do; `passed on`: changes were taken."""
    replies: list[Reply] = []
    for changes in stream._worked(0, ROWS, replies):
        assert changes.num_rows
        order.append("passed on")
    return order


def test_writes_begin_before_the_last_changes_are_taken(tmp_path: Path, order: list[str]) -> None:
    assert end_of_a_step(a_stream(tmp_path, 1 << 28), order) == ["write", "passed on", "flush"] * 2


def test_many_changes_are_not_held(tmp_path: Path, order: list[str]) -> None:
    done = end_of_a_step(a_stream(tmp_path, 1 << 10), order)
    assert done.index("passed on") < done.index("write")
    assert done.count("flush") == 2
