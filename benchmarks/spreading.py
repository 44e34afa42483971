"""What the number of shards and tasks costs: the same triggers, by streams that differ in these alone."""

from pathlib import Path

from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import Name, Spread, Spreading, spread_as
from benchmarks.progress import Tell
from benchmarks.race import check_results
from benchmarks.session import start
from benchmarks.sides import worked


def run_spreading(spreading: Spreading, folder: Path, tell: Tell) -> dict[str, object]:
    """Seconds of the counted triggers by `shards x tasks`, a list for each round.

    Spark has a slot for each task, on two cores. Raises RuntimeError where a table is not right.
    """
    slots = max(tasks for _, tasks in spreading.sides)
    spark = start(folder, {"spark.master": f"local[{slots}]"})
    inbox = Inbox(folder / "inbox", spreading.keys, Spread.UNIFORM)
    sides = {
        spread_as(shards, tasks): Ours.totals(
            spark, inbox.folder, folder / spread_as(shards, tasks), shards=shards, tasks=tasks
        )
        for shards, tasks in spreading.sides
    }
    files = inbox.put_each_key(spreading.keys)
    for name, side in sides.items():
        tell(f"{name} fills its state")
        worked(Name.OURS, side, files)
    seconds: dict[str, list[list[float]]] = {name: [] for name in sides}
    for turn in range(1, spreading.rounds + 1):
        inbox.put(spreading.warm + spreading.counted, spreading.rows)
        for name, side in sides.items():
            tell(f"{name}, round {turn} of {spreading.rounds}")
            found = worked(Name.OURS, side, spreading.warm + spreading.counted)
            seconds[name].append([round(one, 4) for one in found[spreading.warm :]])
    truth = inbox.truth()
    for name, side in sides.items():
        tell(f"{name}: are its results right?")
        check_results(name, side.results(), truth, spreading.keys)
    spark.stop()
    return {"seconds": seconds}
