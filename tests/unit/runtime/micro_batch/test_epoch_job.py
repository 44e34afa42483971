"""The reason of a failed Spark job: the error, without the pages of stack traces around it."""

from pyspark.errors import PySparkException

from dagster_ckpt.runtime.micro_batch.epoch_job import reason_text

FRAMES = "".join(
    f'  File "/somewhere/{number}.py", line 3, in work\n    {"x" * 80}\n    ^^^^\n' for number in range(20)
)
IN_A_TASK = f"""Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times: PythonException:
Traceback (most recent call last):
{FRAMES}KeyError: 'k'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
{FRAMES}dagster_ckpt.errors.CorruptStateError: a file is missing. file=state/x,
  store=s3://bucket/up

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.fail(DAGScheduler.scala:2)"""


def test_the_reason_is_the_error_however_deep_it_was_raised() -> None:
    assert reason_text(PySparkException(IN_A_TASK)) == (
        "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times: PythonException: KeyError: 'k' "
        "During handling of the above exception, another exception occurred: "
        "dagster_ckpt.errors.CorruptStateError: a file is missing. file=state/x, store=s3://bucket/up"
    )


def test_a_reason_has_a_length_limit() -> None:
    assert len(reason_text(PySparkException("why " * 1000))) == 1000


def test_a_library_that_executors_lack_is_named_first_with_what_to_do() -> None:
    text = IN_A_TASK.replace("KeyError: 'k'", "ModuleNotFoundError: No module named 'pyarrow'")
    advice = "the Python of an executor has no pyarrow: install it on every host, in the environment that spark.pyspark"
    assert reason_text(PySparkException(text)).startswith(advice)
    assert reason_text(PySparkException(text.replace("pyarrow", "dagster_ckpt.runtime"))).startswith(
        "the Python of an executor has loaded another dagster-ckpt than the driver's: remove what loads it"
    )
