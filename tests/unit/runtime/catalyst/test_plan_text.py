"""Texts of Spark's plans get labels where Spark's numbers are, and nowhere else."""

import pytest

from dagster_ckpt.runtime.catalyst.plan_text import Labels, in_pieces

NAMES = {3: "k", 14: "k", 15: "a#7", 21: "b"}
TEXTS = {
    "columns": ("(k#14L + b#21) AS x#30", "(k#0L + b#0) AS x#0", "(k + _1) AS x_2"),
    "a column whose name has a number": ("(a#7#15 > 1)", "(a#7#0 > 1)", "(_1 > 1)"),
    "a text of the user's": (
        "(b#21 = k#14) AND (s = k#14L)",
        "(b#0 = k#14) AND (s = k#14L)",
        "(_1 = k#14) AND (s = k#14L)",
    ),
    "a variable": (
        "f(lambda x#22L, lambda x#22L, k#14)",
        "f(lambda x#0L, lambda x#0L, k#0)",
        "f(lambda _1, lambda _1, k)",
    ),
    "a variable that Python numbers": ("(lambda x_9#40)", "(lambda x_9#0)", "(lambda _1)"),
    "a call of Python": ("twice(k#14L)#28L > 2", "twice(k#0L)#0L > 2", "twice(k): bigint > 2"),
    "a subquery": ("scalar-subquery#65 []", "scalar-subquery#0 []", "scalar-subquery_1 []"),
    "a column with a watermark": ("(k#3-T600000ms > b#21)", "(k#0 > b#0)", "(_1 > _2)"),
    "no number": ("a #b # 1#", "a #b # 1#", "a #b # 1#"),
}


@pytest.mark.parametrize(("text", "without", "labelled"), TEXTS.values(), ids=TEXTS)
def test_a_text_gets_labels(text: str, without: str, labelled: str) -> None:
    labels = Labels({28: "bigint"}, NAMES, {14: "k"})
    assert labels.text(in_pieces(text, without, NAMES)) == labelled


def test_the_first_number_of_a_process_is_known_by_its_name() -> None:
    pieces = in_pieces("(k#0L + lambda k#5L = 0#0)", "(k#0L + lambda k#0L = 0#0)", {0: "k"})
    assert Labels({}, {0: "k"}).text(pieces) == "(_1 + lambda _2 = 0#0)"
