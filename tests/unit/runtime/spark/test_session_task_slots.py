import pytest

from dagster_ckpt.runtime.spark.session import slots_allowed
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment

DYNAMIC = {"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("conf", "slots_now", "slots"),
    [
        ({"spark.master": "local[4]", "spark.dynamicAllocation.enabled": "true"}, 4, 4),
        ({"spark.master": "local"}, 1, 1),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10", "spark.executor.cores": "4"}, 2, 40),
        (
            {
                **DYNAMIC,
                "spark.dynamicAllocation.maxExecutors": "10",
                "spark.executor.cores": "4",
                "spark.task.cpus": "2",
            },
            2,
            20,
        ),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}, 2, 10),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}, 32, 32),
        ({**DYNAMIC, "spark.executor.cores": "4", "spark.cores.max": "24"}, 2, 24),
        ({**DYNAMIC, "spark.default.parallelism": "6", "spark.dynamicAllocation.maxExecutors": "10"}, 6, 6),
        ({"spark.master": "k8s://host", "spark.executor.instances": "5", "spark.executor.cores": "2"}, 2, 10),
        ({"spark.master": "spark://host:7077", "spark.cores.max": "16"}, 2, 16),
        ({"spark.master": "spark://host:7077"}, 12, 12),
        (
            {"spark.master": "local-cluster[2,3,1024]", "spark.executor.instances": "2", "spark.executor.cores": "3"},
            2,
            6,
        ),
    ],
)
def test_slots_are_those_of_all_executors_that_the_settings_allow(
    conf: dict[str, str], slots_now: int, slots: int
) -> None:
    assert slots_allowed(conf, slots_now) == slots


def test_unlimited_executors_give_each_shard_a_task_and_no_more() -> None:
    assert ShardAssignment.keyed(64, slots_allowed(DYNAMIC, 2)).tasks == 64
