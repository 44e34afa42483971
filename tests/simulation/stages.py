"""The steps of a stream, stage after stage: what Spark does with the tasks of an epoch that has several."""

from typing import TYPE_CHECKING

from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from tests.simulation.graph import added_to_cells, inflow, of_shard
from tests.simulation.job import Sums, batch, consumed

if TYPE_CHECKING:
    from tests.simulation.driver import Driver, Job
    from tests.simulation.scheduler import Process
    from tests.simulation.tasks import Order

LOST_SHUFFLE = 0.05
"""How likely Spark loses what a step has emitted, and works again for some of its shards."""
DEATH = 0.01
"""How likely the driver or its executor dies when a step has replied in full."""
FAILED_ATTEMPT = 0.1
"""How likely Spark takes an attempt for failed, and starts another."""


def run_steps(driver: "Driver", executor: "Process", job: "Job", order: "Order") -> None:
    """Run the tasks of each step when all of the step before have replied; in `job` are the replies."""
    manifest = driver.writer.manifest
    pipeline, shards = order.changed or manifest.pipeline, frozenset(job.shards)
    kept = {} if order.changed is None else StepChange.between(manifest.pipeline, pipeline).kept
    number = consumed(manifest) + 1
    emitted = dict[int, Sums]()
    for step in range(len(pipeline.steps)):
        # A kept step passes its table on, which its tasks have.
        changes = (
            {} if step in kept else added_to_cells(batch(number)) if step == 0 else inflow(pipeline, step, emitted)
        )
        if step:
            job.next_stage(driver.world.threads.Event(), shards)
        if not _is_run(driver, executor, job, order, step, changes):
            return
        emitted[step] = _together(job.emitted)
        if not driver.world.calm and driver.chance.random() < DEATH:
            driver.chance.choice([executor, driver.process]).end()
            driver.stream.oracle.counts["deaths between steps"] += 1
        if driver.world.calm or step == len(pipeline.before) or driver.chance.random() >= LOST_SHUFFLE:
            continue
        # Readers of some shards get the changes of the second run, in which the rows have other classes.
        first = dict(job.emitted)
        changes = added_to_cells(batch(number), run=1) if step == 0 and not kept else changes
        some = frozenset(driver.chance.sample(sorted(shards), driver.chance.randrange(1, len(shards) + 1)))
        job.next_stage(driver.world.threads.Event(), some)
        job.repeated = True
        driver.stream.oracle.counts["stages that ran twice"] += 1
        if not _is_run(driver, executor, job, order, step, changes):
            return
        emitted[step] = _together(first | job.emitted)


def _is_run(driver: "Driver", executor: "Process", job: "Job", order: "Order", step: int, changes: Sums) -> bool:
    """Run the tasks of one step; whether all of its shards have replied."""
    chance, faults, calm = driver.chance, driver.character.faults, driver.world.calm
    of = driver.writer.manifest.shards
    for shard in sorted(job.shards):
        mine = of_shard(changes, shard, of) if order.reads else {}
        if not calm and chance.random() < FAILED_ATTEMPT:
            driver.start_task(executor, job, order, shard, step, mine, fails=True)
        for _ in range(2 if chance.random() < faults.speculation else 1):
            driver.start_task(executor, job, order, shard, step, mine)
    job.changed.wait(driver.character.timeout_ms / 1000)
    return job.is_over and not job.lost


def _together(emitted: dict[Shard, Sums]) -> Sums:
    """The changes of all shards: no two have those of one name."""
    return {name: more for shard in sorted(emitted) for name, more in emitted[shard].items()}
