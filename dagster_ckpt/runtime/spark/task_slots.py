"""How many tasks a Spark application may run at once."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from dagster_ckpt.storage.stores.address import is_local_master

_EXECUTORS_MAX = 2**31 - 1
"""Spark's default for `spark.dynamicAllocation.maxExecutors`."""


def task_slots(session: SparkSession) -> int:
    """The slots of all executors that the application is allowed, running or not."""
    context = session.sparkContext
    return slots_allowed(dict(context.getConf().getAll()), context.defaultParallelism)


def slots_allowed(conf: Mapping[str, str], slots_now: int) -> int:
    """The slots that an application's settings allow, at least `slots_now`.

    Dynamic allocation adds executors only while tasks wait; without it they register after the start. A number of tasks
    that followed the running executors would keep a stream as small as it began.
    """
    if "spark.default.parallelism" in conf or is_local_master(conf.get("spark.master", "")):
        return slots_now
    cores_of_a_task = int(conf.get("spark.task.cpus", "1"))
    slots_of_an_executor = max(1, int(conf.get("spark.executor.cores", "1")) // cores_of_a_task)
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        slots = int(conf.get("spark.dynamicAllocation.maxExecutors", _EXECUTORS_MAX)) * slots_of_an_executor
        slots = min(slots, int(conf.get("spark.cores.max", _EXECUTORS_MAX)) // cores_of_a_task)
    else:
        slots = int(conf.get("spark.executor.instances", "0")) * slots_of_an_executor
        slots = max(slots, int(conf.get("spark.cores.max", "0")) // cores_of_a_task)
    return max(slots, slots_now)
