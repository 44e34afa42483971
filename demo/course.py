"""Waiting while the streams work: looking at them, feeding them, and giving up where nothing moves any more."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from demo.dagster_api import DagsterApi
from demo.errors import DemoError
from demo.feeder import Feeder
from demo.report import Bars
from demo.watch import Watch

LOOK_S = 0.2
"""How often we look."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits for what the streams do. Where none commits for `stall_s`, it gives up."""

    stall_s: float
    watch: Watch
    api: DagsterApi

    def until(self, reached: Callable[[], bool], before: Callable[[float], None] | None = None) -> None:
        """Look until `reached`; `before` each look something may be done. Raises DemoError where nothing moves."""
        since_s = time.monotonic()
        while not reached():
            now_s = time.monotonic()
            if before is not None:
                before(now_s)
            self.watch.look(now_s)
            if now_s - max(self.watch.moved_s, since_s) > self.stall_s:
                runs = ", ".join(f"{run.job} {run.status}" for run in self.api.runs())
                raise DemoError(f"no stream has committed anything for {self.stall_s:.0f} s. runs=[{runs}]")
            time.sleep(LOOK_S)


@dataclass(frozen=True, slots=True)
class Course:
    """Feeds while it waits, one stretch of the way after the other."""

    patience: Patience
    feeder: Feeder
    bars: Bars

    def until(self, reached: Callable[[], bool], days: int) -> None:
        """Go on until `reached`, with at most `days` dropped. Raises DemoError where nothing moves for too long."""

        def feed(now_s: float) -> None:
            self.feeder.feed(now_s, until=days)
            self.bars.show(self.feeder.fed, self.patience.watch.standings)

        self.patience.until(reached, feed)
