from benchmarks.profile.flames import Box, Call, boxes
from benchmarks.profile.phases import PHASES, table
from benchmarks.profile.samples import DRIVER, TASKS, per_trigger, python_stacks

RAW = """\
process 1:"python -m benchmarks";Thread._bootstrap (threading.py:1002);work (dagster_ckpt/runtime/driver.py:56) 2
process 1:"python";process 2:"java -cp x";process 3:"python -m pyspark.daemon";worked (task.py:7);flush (state.py:9) 5
process 1:"python";process 2:"java -cp x";process 3:"python -m pyspark.daemon";worked (task.py:8);flush (state.py:9) 1
"""


def test_samples_are_of_the_innermost_process_and_lines_make_no_difference() -> None:
    assert python_stacks(RAW, sample_ms=4.0) == {
        (DRIVER, "work (driver.py)"): 8.0,
        (TASKS, "worked (task.py)", "flush (state.py)"): 24.0,
    }
    assert per_trigger({("a",): 30.0}, 10) == {("a",): 3.0}


def test_a_call_is_as_wide_as_all_that_it_calls_and_the_widest_is_first() -> None:
    stacks = {("a", "x"): 30.0, ("b",): 60.0, ("a", "y"): 10.0, ("a",): 5.0, ("c",): 0.1}
    assert boxes(Call.of(stacks)) == [
        Box("b", 0.0, 60.0, 0, 0),
        Box("a", 60.0, 45.0, 0, 1),
        Box("x", 60.0, 30.0, 1, 1),
        Box("y", 90.0, 10.0, 1, 1),
    ]


def test_each_number_of_rows_is_a_column() -> None:
    found = dict.fromkeys(PHASES, 2.4)
    lines = table({1_000: found, 200_000: found}).splitlines()
    assert lines[0] == "|  | 1,000 rows | 200,000 rows |"
    assert lines[-1] == "| a trigger | 2 ms | 2 ms |"
    assert len(lines) == 2 + len(PHASES)
