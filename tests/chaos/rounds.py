"""A round: strikes one after another while rows keep coming, then proof that no row was lost or doubled.

After the strikes one stream is drained and rolled back, as a person does. Then its events, too, must add up.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dagster as dg
import pyarrow as pa

from demo.dagster_api import Run
from tests.chaos.cluster import NO_ANSWER, Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import CONTINUOUS, LANES, USUAL, Wrong, inbox_in, rows_of
from tests.chaos.stored_events import Counts, added_up, events_of, newest_event
from tests.chaos.strikes import LANES_OF, Kind, NoTargetError, Strike, strike
from tests.chaos.world import until

LOOK_S = 0.25
RECOVERY_S_MAX = 600.0
"""A lane that has not committed this long after a strike is taken for lost."""

REPORTED_S_MAX = 180.0
"""What a lane that has read everything is given to report its newest epoch: `swept` reports at the end of its run."""

SWEEP_LOOK_S = 2.0
SENSOR_S = 20.0
"""What the recovery sensor is given to start a failed run again, before a person does."""

_PIN = "before-the-round"


class BrokenPromiseError(AssertionError):
    """A stream did not do what it promises."""


@dataclass
class Outcome:
    """What came of a round: its strikes, how each lane's table differs from the right one, and its events in Dagster.

    `events` are how many Dagster has stored of each lane, in all rounds so far; empty until all of them add up.
    """

    strikes: list[Strike] = field(default_factory=list)
    wrong: dict[str, Wrong] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return sum(wrong.lost + wrong.other for wrong in self.wrong.values())

    @property
    def doubled(self) -> int:
        return sum(wrong.doubled for wrong in self.wrong.values())


@dataclass
class Rounds:
    """Rounds on one cluster. `overlap` is how often, of one, a strike does not wait until those before it are over.

    `lanes` are those that the cluster has. `sweep_pause_s` is how long nobody starts `swept` again after it has ended.
    `tell` hears what happens, for people.
    """

    cluster: Cluster
    feeder: Feeder
    chance: random.Random
    overlap: float = 0.25
    lanes: Sequence[str] = USUAL
    sweep_pause_s: float = 10.0
    tell: Callable[[str], None] = lambda text: None
    _idle_since_s: float | None = None
    _asked_at_s: float = 0.0

    @property
    def _continuous(self) -> list[str]:
        return [lane for lane in CONTINUOUS if lane in self.lanes]

    def begin(self) -> None:
        """Until every lane has committed something."""
        self.cluster.wait_until_ready()
        until(
            "every lane commits",
            lambda: self._look([]) and all(self.cluster.standing(lane).rows for lane in self.lanes),
            RECOVERY_S_MAX,
        )

    def play(self, kinds: Sequence[Kind], outcome: Outcome) -> None:
        """A strike of each of the kinds, then the comparison; `outcome` is filled on the way.

        They come in their order, but a kind that finds no target at the moment lets the next one go before.
        Raises `BrokenPromiseError` where a lane does not come back, a zombie was not fenced, what was pinned before
        the round is not what it was, or the events of a lane do not add up to its totals.
        """
        pinned = {lane: self._pinned(lane) for lane in self._continuous}
        left = list(kinds)
        while left:
            self._wait(outcome.strikes, self.chance.uniform(0.2, 5.0))
            if self.chance.random() >= self.overlap:
                self._until_over(outcome.strikes)
            made = self._strike(left, outcome.strikes)
            left.remove(made.kind)
            outcome.strikes.append(made)
        self._until_over(outcome.strikes)
        lane = self.chance.choice(self._continuous)
        self._drain_and_roll_back(lane, pinned[lane][0])
        self._until_all_is_in()
        outcome.wrong = self._compared()
        outcome.events = self._events_added_up()
        self.feeder.resume()
        for lane, (epoch, before) in pinned.items():
            if not self.cluster.history(lane).read(epoch).equals(before):
                raise BrokenPromiseError(f"a pinned epoch reads otherwise now. lane={lane}, epoch={epoch}")
            self.cluster.history(lane).unpin(_PIN)

    def _strike(self, kinds: Sequence[Kind], strikes: Sequence[Strike]) -> Strike:
        """A strike of the first of the kinds that has a target; waits until one has."""
        end_s = time.monotonic() + RECOVERY_S_MAX
        seed = self.chance.getrandbits(64)  # the same choices, however often it is tried
        while time.monotonic() < end_s:
            busy = {lane for each in strikes if not each.is_over for lane in each.before}
            for kind in kinds:
                if kind is Kind.EVERYTHING and busy:
                    continue  # it would end what others are still waiting for
                try:
                    among = [lane for lane in LANES_OF[kind] if lane in self.lanes]
                    made = strike(kind, self.cluster, random.Random(seed), busy, among)
                except NoTargetError:
                    continue
                self.tell(f"{made.name} on {', '.join(made.before)}")
                return made
            self._wait(strikes, LOOK_S)
        raise BrokenPromiseError(f"there was nothing to strike for {RECOVERY_S_MAX:.0f} s. kinds={[*map(str, kinds)]}")

    def _until_over(self, strikes: Sequence[Strike]) -> None:
        while not all(each.is_over for each in strikes):
            self._wait(strikes, LOOK_S)
            for each in strikes:
                if not each.is_over and time.monotonic() - each.at_s > RECOVERY_S_MAX:
                    raise BrokenPromiseError(
                        f"a strike is not over after {RECOVERY_S_MAX:.0f} s. strike={each}, now="
                        f"{ {lane: self.cluster.standing(lane) for lane in self.lanes} }"
                    )
        for each in strikes:
            if each.zombie is not None and not each.zombie.was_fenced:
                raise BrokenPromiseError(f"a zombie did not end with FencedError. zombie={each.zombie}")

    def _wait(self, strikes: Sequence[Strike], seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while True:
            self._look(strikes)
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, LOOK_S))

    def _look(self, strikes: Sequence[Strike]) -> bool:
        """See how the strikes stand, and sweep. Always True."""
        for each in strikes:
            if not each.is_over:
                before = each.seconds
                each.look(self.cluster)
                if before is None and each.seconds is not None:
                    self.tell(f"{each.name}: back after {each.seconds:.1f} s")
        self._sweep()
        return True

    def _sweep(self) -> None:
        """Start the lane that ends by itself again, on the asset's page, when none of its runs works."""
        now_s = time.monotonic()
        if "swept" not in self.lanes or now_s - self._asked_at_s < SWEEP_LOOK_S:
            return
        self._asked_at_s = now_s
        try:
            runs = self.cluster.runs("swept")
            if any(run.unfinished for run in runs):
                self._idle_since_s = None
                return
            if self._idle_since_s is None:
                self._idle_since_s = now_s
            # One that failed is the sensor's to start again, and it is given the time.
            if now_s - self._idle_since_s >= self._patience_s(runs):
                self.cluster.api.materialize("swept")
                self._idle_since_s = None
        except NO_ANSWER:
            pass  # Dagster is down: later

    def _patience_s(self, runs: Sequence[Run]) -> float:
        """How long `swept` stays idle, given its runs, newest first."""
        if runs and runs[0].status == "FAILURE":
            return SENSOR_S
        return self.sweep_pause_s if runs and self.feeder.flows else 0.0

    def _drain_and_roll_back(self, lane: str, after: int) -> None:
        """End the lane's writer, then show an older epoch that is younger than `after`, from which the next goes on."""
        history = self.cluster.history(lane)
        draining = history.drain()
        if draining is not None:
            draining.wait()
        retained = [each.epoch for each in history.epochs() if each.epoch > after]
        older = retained[len(retained) // 2]
        # The sensor may have started the next writer by now.
        history.rollback(older, fence=True)
        rolled_back = history.manifest().version
        self.tell(f"{lane}: drained, and rolled back to epoch {older} of {retained[0]}")
        until(
            f"{lane} commits again after its rollback",
            lambda: self._look([]) and self.cluster.standing(lane).epoch > rolled_back,
            RECOVERY_S_MAX,
        )

    def _until_all_is_in(self) -> None:
        """No more rows come, and every lane has all there are."""
        until(
            "a manifest of every lane that never ends is retired: the collector works under fire",
            lambda: self._look([]) and all(map(self.cluster.has_retired, self._continuous)),
            RECOVERY_S_MAX,
        )
        self.feeder.pause()
        until(
            "every lane has all rows, and has let out what its watermark closes",
            lambda: self._look([]) and all(self._has_all(lane) for lane in self.lanes),
            RECOVERY_S_MAX,
        )

    def _compared(self) -> dict[str, Wrong]:
        """How every table differs from the right one."""
        rows = rows_of(inbox_in(self.cluster.place))
        found = {}
        for lane in self.lanes:
            history = self.cluster.history(lane)
            found[lane] = LANES[lane](history.read().to_pandas(), rows)
            if (damaged := history.verify()).findings:
                raise BrokenPromiseError(f"an object is damaged or missing. {lane=}, findings={damaged.findings}")
        return found

    def _events_added_up(self) -> dict[str, int]:
        """How many events Dagster has stored of each lane; together they are the lane's totals."""
        found = {}
        with dg.DagsterInstance.from_config(str(self.cluster.place / "home")) as instance:
            for lane in self.lanes:
                until(
                    f"Dagster has an event of the newest epoch of {lane}",
                    lambda lane=lane: self._look([]) and self._is_reported(instance, lane),  # type: ignore[misc]
                    REPORTED_S_MAX,
                )
                total = added_up(events_of(instance, lane))
                if total.wrong is not None:
                    raise BrokenPromiseError(f"the events of a lane do not add up. {lane=}, {total.wrong}")
                found[lane] = total.events
        return found

    def _is_reported(self, instance: dg.DagsterInstance, lane: str) -> bool:
        newest, manifest = newest_event(instance, lane), self.cluster.history(lane).manifest()
        return newest is not None and (newest.epoch, newest.totals) == (manifest.epoch, Counts.of(manifest))

    def _has_all(self, lane: str) -> bool:
        if self.cluster.standing(lane).rows < self.feeder.rows:
            return False
        newest = self.cluster.history(lane).manifest()
        return newest.watermark_us == newest.harvested_us

    def _pinned(self, lane: str) -> tuple[int, pa.Table]:
        """The lane's newest epoch, and its table, pinned."""
        history = self.cluster.history(lane)
        epoch = history.latest().epoch
        history.pin(epoch, _PIN)
        return epoch, history.read(epoch)
