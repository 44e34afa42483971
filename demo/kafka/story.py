"""What happens in the demo of Kafka, in order."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from dagster_ckpt import CheckpointStore
from demo.course import Patience
from demo.dagster_dev import DagsterDev
from demo.kafka.places import DELAYS, DEPARTURES, Places
from demo.kafka.producer import Flights
from demo.kafka.proof import Delivered, destinations, prove
from demo.kafka.servers import Servers
from demo.kafka.victims import Victims
from demo.report import Report
from demo.standing import standing
from demo.story import end_runs
from demo.watch import Watch

STREAMS = (DEPARTURES, DELAYS)


@dataclass(frozen=True, slots=True)
class Plan:
    """The course of the demo.

    `first_days` are in the topic when the streams begin. While there is something left to kill, days come at
    `days_per_second`, and more slowly once `slow_from` are there: a delivery that has nothing to deliver shows nothing.
    """

    first_days: int = 14
    days_per_second: float = 5.0
    slow_from: int = 250
    stall_s: float = 120.0


def play(
    plan: Plan, seed: int, places: Places, flights: Flights, servers: Servers, dagster: DagsterDev, report: Report
) -> bool:
    """Run the flights through a ready Dagster; returns whether every destination equals the batch computation."""
    deliveries = destinations(places)
    store, began_s = CheckpointStore(places.store), time.monotonic()
    watch = Watch(store, [*STREAMS, *deliveries], began_s)
    patience = Patience(plan.stall_s, watch, dagster.api)
    flights.produce(plan.first_days)
    report.say("streams", f"{', '.join(STREAMS)}: the recovery sensor starts them, and {len(deliveries)} deliveries")
    patience.until(lambda: watch.began(deliveries))
    report.say("delivery", f"rows are in every destination after {time.monotonic() - began_s:.0f} s")
    waits = {
        **{stream: [each for each, to in deliveries.items() if to.stream == stream] for stream in STREAMS},
        **{delivery: [delivery] for delivery in deliveries},
        "broker": [*deliveries],
        "database": ["delays_in_postgres"],
    }
    victims = Victims(dagster, store, servers, waits, random.Random(seed), report.say)
    report.say("kill", f"{len(waits)} times, in an order and at moments of chance (SEED={seed})")

    def at_each_look(now_s: float) -> None:
        flights.produce_at(plan.days_per_second if flights.produced < plan.slow_from else 1.0, now_s)
        victims.look(now_s)

    patience.until(lambda: victims.are_over, at_each_look)
    victims.finish()
    flights.finish()
    report.say("producer", f"all of it is in the topic: {flights.departed:,} departures")
    patience.until(lambda: _are_through(store, deliveries, flights.departed))
    report.say("end", "every row is delivered; ending the Dagster runs")
    end_runs(dagster.api)
    equal, rows = prove(places, flights.days, report), []
    for delivery in deliveries:
        met = [each.seconds[delivery] for each in victims.kills if delivery in each.before]
        now = standing(store, delivery)
        rows.append([delivery, f"{now.rows:,}", f"{now.epochs:,}", f"{len(met)}", f"{max(met):.1f} s"])
    headings = ["delivery", "rows\ndelivered", "trans-\nactions", "kills", "longest\nwait"]
    report.table(headings, rows, [equal[delivery] for delivery in deliveries])
    return all(equal.values())


def _are_through(store: CheckpointStore, deliveries: Mapping[str, Delivered], departed: int) -> bool:
    """Whether every stream has all departures, and every delivery its stream's newest epoch."""
    now = {stream: standing(store, stream) for stream in STREAMS}
    return all(each.rows == departed for each in now.values()) and all(
        (to.stream, now[to.stream].epoch) in standing(store, delivery).consumed for delivery, to in deliveries.items()
    )
