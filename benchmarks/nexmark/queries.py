"""The queries of Nexmark in Spark's SQL, and what they need of a session.

    q0  q1  q2  q10  q14  q21  q22   row by row: no state
    q3  q9  q20  q4  q6              joins, some within an auction's time, with what is computed of them
    q5  q7  q8                       windows, joined back
    q11                              sessions
    q13                              a table that does not stream
    q15  q16  q17                    statistics of a day
    q18  q19                         the first rows of each key

q12 is q11 in windows of the time at which a bid is processed. No batch has such a result, so it is refused.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.nexmark.events import TABLES, side_input

_FOLDER = Path(__file__).with_name("queries")
QUERIES: Mapping[str, str] = {f"q{number}": _FOLDER.joinpath(f"q{number}.sql").read_text() for number in range(23)}
OF_PROCESSING_TIME = ("q12",)
"""Their meaning is processing time alone."""


def tables_of(name: str) -> list[str]:
    """The tables of events that a query reads."""
    read = re.findall(r"\b(?:FROM|JOIN) (\w+)", QUERIES[name])
    return [table for table in TABLES if table in read]


def prepare(session: SparkSession) -> None:
    """Give the session what some queries call besides their streams: a function, and a table."""
    session.udf.register("count_char", _count_char, "int")
    session.createDataFrame(side_input()).createOrReplaceTempView("side_input")


def _count_char(text: str | None, letter: str) -> int | None:
    return None if text is None else text.count(letter)
