"""A store or a Spark master that does not answer is no fault of the stream's: the sensor never stops trying."""

import dagster as dg
import pytest
from py4j.protocol import Py4JError

from dagster_ckpt import StoreUnavailableError
from dagster_ckpt.delivery.destination import RowsRefusedError
from dagster_ckpt.errors import OutsideCodeError
from tests.dagster.sensor_world import SensorWorld, a_world

STARTING, STARTED = dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED

FULL = StoreUnavailableError("the file system refused: free some space on the disk. reason=No space left on device")
STANDALONE = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:

org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)
java.base/java.lang.Thread.run(Thread.java:840)

And it was stopped at:

org.apache.spark.SparkContext$$anon$3.run(SparkContext.scala:2295)
"""
STANDALONE_EARLIER = """An error occurred while calling None.org.apache.spark.api.python.PythonAccumulatorV2.
: java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.conf()" because the return value of \
"org.apache.spark.SparkEnv$.get()" is null
\tat org.apache.spark.api.python.PythonAccumulatorV2.<init>(PythonRDD.scala:762)
"""
KUBERNETES = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:629)
Caused by: java.io.IOException: Connection refused: /127.0.0.1:1
"""
WRONG_CONFIG = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'nonsense'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3206)
"""
STOPPED_BY_THE_USER = STANDALONE.replace("SparkContext$$anon$3.run", "SparkContext.stop")


def outage(world: SensorWorld, run: dg.DagsterRun, error: BaseException, runs: int) -> dg.DagsterRun:
    """This run and those that the sensor launches in its place fail with that error; the last one's successor."""
    for _ in range(runs):
        world.fail(run, "s", error)
        request = next((each for _ in range(40) for each in world.tick(10).run_requests or []), None)
        assert request is not None, "the sensor has stopped"
        run = world.move(world.launch(request), STARTING, STARTED)
    return run


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        Py4JError(STANDALONE),
        Py4JError(STANDALONE_EARLIER),
        Py4JError(KUBERNETES),
        OutsideCodeError("delivering to PostgreSQL needs its driver"),
        RowsRefusedError("violates not-null constraint"),
    ],
    ids=["full disk", "standalone master", "standalone master, earlier", "kubernetes", "no driver", "refused row"],
)
def test_the_sensor_never_gives_up_on_what_does_not_answer(error: BaseException) -> None:
    world = a_world()
    run = outage(world, world.started("s"), error, 7)
    assert run.tags["dagster_ckpt/unavailable"] == "7"
    assert not {"dagster_ckpt/attempt", "dagster_ckpt/same_error"} & run.tags.keys()


@pytest.mark.parametrize("text", [WRONG_CONFIG, STOPPED_BY_THE_USER], ids=["wrong config", "stopped by the user"])
def test_a_spark_that_cannot_start_as_configured_is_a_crash_loop(text: str) -> None:
    world = a_world()
    with pytest.raises(AssertionError, match="the sensor has stopped"):
        outage(world, world.started("s"), Py4JError(text), 3)


def test_the_check_names_what_does_not_answer_and_the_sensor_keeps_retrying() -> None:
    world = a_world()
    run = world.started("s")
    writer = world.open("s", run)
    world.commit(writer)
    world.fail(run, "s", FULL)
    [request] = world.tick().run_requests or []
    assert world.check("s") is None, "one may be a hiccup, and its relaunch follows at once"
    run = world.move(world.launch(request), STARTING, STARTED)
    world.fail(outage(world, run, FULL, 1), "s", FULL)
    world.tick()
    check = world.check("s")
    assert check is not None
    assert not check.passed
    for words in ("does not answer", "the sensor keeps restarting the stream", "No space left on device"):
        assert words in str(check.description)
    assert check.metadata["failures"].value == 3
    assert check.metadata["last_epoch"].value == writer.manifest.epoch


def test_the_check_is_reported_once_for_each_run() -> None:
    world = a_world()
    world.fail(outage(world, world.started("s"), FULL, 1), "s", FULL)
    for _ in range(3):
        world.cursor = None
        world.tick(0.5)
    assert len(world.reports("no_crash_loop")) == 1


def test_after_an_outage_the_first_epoch_gives_everything_back() -> None:
    world = a_world()
    run = outage(world, world.started("s"), FULL, 3)
    world.commit(world.open("s", run))
    world.fail(run, "s", FULL)
    [request] = world.tick().run_requests or []
    assert request.tags["dagster_ckpt/unavailable"] == "1"
