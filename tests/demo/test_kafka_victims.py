"""Who is killed in the demo of Kafka, and when that is over."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from demo.kafka import victims
from demo.kafka.victims import Victims


@dataclass
class _World:
    """Rows of each delivery, workers of each stream, and what was killed."""

    rows: dict[str, int]
    workers: dict[str, int]
    killed: list[object] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    started: int = 0

    def kill(self) -> None:
        self.killed.append("database")

    def start(self) -> None:
        self.started += 1

    def victims(self, waits: dict[str, list[str]]) -> Victims:
        servers: Any = SimpleNamespace(database=self, broker=self)
        dagster: Any = SimpleNamespace(session=1)
        store: Any = None
        made = Victims(dagster, store, servers, waits, random.Random(1), lambda *said: self.said.append(said))
        made._due_s = 0.0
        return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> _World:
    world = _World({"delays": 5, "departures": 7}, {"delays": 41})
    monkeypatch.setattr(victims, "kill", lambda pid, _session: world.killed.append(pid))
    monkeypatch.setattr(victims, "RESTART_S", 0.0)
    monkeypatch.setattr(Victims, "_rows", lambda _, delivery: world.rows[delivery])
    monkeypatch.setattr(Victims, "_worker", lambda _, stream: world.workers.get(stream))
    return world


def test_a_kill_is_over_when_every_delivery_that_waits_for_it_has_delivered(world: _World) -> None:
    made = world.victims({"delays": ["delays", "departures"]})
    made.look(1.0)
    assert world.killed == [41]
    over = []
    for delivery in ("delays", "departures"):
        world.rows[delivery] += 1
        made.look(2.0)
        over.append(made.are_over)
    assert over == [False, True]
    assert [topic for topic, _ in world.said] == ["kill", "recovery"]


def test_who_is_not_there_is_killed_later(world: _World) -> None:
    made = world.victims({"departures": ["departures"]})
    made.look(1.0)
    assert (world.killed, made.are_over) == ([], False)
    world.workers["departures"] = 42
    made.look(2.0)
    assert world.killed == [42]


def test_a_server_is_started_again(world: _World) -> None:
    made = world.victims({"database": ["delays"]})
    made.look(1.0)
    made.finish()
    assert (world.killed, world.started) == (["database"], 1)
