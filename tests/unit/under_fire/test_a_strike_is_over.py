from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.chaos.cluster import AtWork, Cluster, Standing
from tests.chaos.strikes import Kind, Strike, Wakes, Zombie

BEFORE = Standing(term=3, epoch=10, rows=100)
LONG_AGO_S = float("-inf")


@dataclass
class _World:
    """What a strike asks of the cluster."""

    now: dict[str, Standing]
    pids: set[int] = field(default_factory=set)
    finished: bool = False
    woken: list[int] = field(default_factory=list)
    errors: tuple[str, ...] = ()

    def standing(self, lane: str) -> Standing:
        return self.now[lane]

    def members(self) -> set[int]:
        return self.pids

    def is_finished(self, run: str) -> bool:
        return self.finished

    def wake(self, *pids: int) -> None:
        self.woken += pids

    @property
    def api(self) -> "_World":
        return self

    def step_errors(self, run: str) -> list[str]:
        return [*self.errors]

    def as_cluster(self) -> Cluster:
        return cast(Cluster, cast(Any, self))


def _zombie(wakes: Wakes, not_before_s: float = LONG_AGO_S) -> Zombie:
    return Zombie("keyed", AtWork("run", 7), (7,), BEFORE.term, BEFORE.epoch, not_before_s, wakes)


def test_it_is_over_when_every_lane_it_hurt_has_committed_again() -> None:
    world = _World({"keyed": BEFORE, "appended": Standing(4, 11)})
    strike = Strike(Kind.EVERYTHING, {"keyed": BEFORE, "appended": BEFORE}, at_s=0.0)
    over = []
    for epoch in (10, 11):
        world.now["keyed"] = Standing(3, epoch)
        strike.look(world.as_cluster())
        over.append((strike.is_over, strike.seconds is not None))
    assert over == [(False, False), (True, True)]


def test_what_a_zombie_commits_itself_is_no_recovery() -> None:
    world = _World({"keyed": Standing(BEFORE.term, 11)}, pids={7})
    strike = Strike(Kind.STOP, {"keyed": BEFORE}, at_s=0.0, zombie=_zombie(Wakes.DECLARED))
    back = []
    for term in (BEFORE.term, BEFORE.term + 1):
        world.now["keyed"] = Standing(term, 12)
        strike.look(world.as_cluster())
        back.append(strike.seconds is not None)
    assert back == [False, True]
    assert not strike.is_over, "the zombie has not ended yet"


@pytest.mark.parametrize(
    ("wakes", "now", "finished", "due"),
    [
        (Wakes.DECLARED, BEFORE, False, False),
        (Wakes.DECLARED, BEFORE, True, True),
        (Wakes.OPENED, BEFORE, True, False),
        (Wakes.OPENED, Standing(4, 10), True, True),
        (Wakes.COMMITTED, Standing(4, 10), True, False),
        (Wakes.COMMITTED, Standing(4, 11), True, True),
    ],
)
def test_a_zombie_is_woken_up_when_that_is_so_for_which_it_waits(
    wakes: Wakes, now: Standing, finished: bool, due: bool
) -> None:
    world = _World({"keyed": now}, pids={7}, finished=finished)
    _zombie(wakes).look(world.as_cluster())
    assert world.woken == ([7] if due else [])


def test_a_zombie_is_not_woken_up_before_its_time() -> None:
    world = _World({"keyed": Standing(4, 11)}, pids={7}, finished=True)
    _zombie(Wakes.COMMITTED, not_before_s=float("inf")).look(world.as_cluster())
    assert not world.woken


@pytest.mark.parametrize(
    ("errors", "fenced"), [(("a: b\nFencedError: another",), True), (("a: b",), False), ((), False)]
)
def test_a_zombie_that_has_ended_was_fenced_if_its_run_says_so(errors: tuple[str, ...], fenced: bool) -> None:
    world = _World({"keyed": Standing(4, 11)}, pids={7}, finished=True, errors=errors)
    zombie = _zombie(Wakes.OPENED)
    ended = []
    for pids in ({7}, {7}, set[int]()):
        world.pids = pids
        zombie.look(world.as_cluster())
        ended.append(zombie.has_ended)
    assert ended == [False, False, True]
    assert zombie.was_fenced is fenced
