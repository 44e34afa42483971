"""Whose fault a destination's error is."""

from typing import Any

import pytest

from dagster_ckpt.delivery.destination import DestinationMismatchError, DestinationUnavailableError, RowsRefusedError
from dagster_ckpt.destinations.faults import Fault, destination_error, fault_by_sqlstate, fault_by_text
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.integration.recovery.crash_loop import Cause, RunError
from dagster_ckpt.runtime.kafka.topics import SourceUnavailableError, TopicGoneError


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("22003", Fault.ROWS),  # numeric value out of range
        ("22021", Fault.ROWS),  # a zero byte in text
        ("23502", Fault.ROWS),  # not null
        ("23503", Fault.ROWS),  # foreign key
        ("23514", Fault.ROWS),  # check
        ("21000", Fault.ROWS),
        ("44000", Fault.ROWS),
        ("P0001", Fault.ROWS),  # RAISE EXCEPTION
        ("28P01", Fault.PERSON),  # password
        ("3D000", Fault.PERSON),  # no such database
        ("42501", Fault.PERSON),  # privilege
        ("08006", Fault.NO_ANSWER),
        ("40001", Fault.NO_ANSWER),  # serialization
        ("42703", Fault.NO_ANSWER),  # a column was dropped: the next opening compares them
        ("53100", Fault.NO_ANSWER),  # disk full
        ("55P03", Fault.NO_ANSWER),  # lock
        ("57P01", Fault.NO_ANSWER),  # shutdown
        ("", Fault.NO_ANSWER),
        (None, Fault.NO_ANSWER),
    ],
)
def test_an_sql_error_is_judged_by_its_state(state: str | None, fault: Fault) -> None:
    assert fault_by_sqlstate(state, "no more is known") is fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Generic error: Invalid data found: 1 rows failed validation check.\n| -5 |", Fault.ROWS),
        ("Generic S3 error: Client error with status 403 Forbidden: AccessDenied", Fault.PERSON),
        ("PermissionError: [Errno 13] Permission denied: '/data/_delta_log'", Fault.PERSON),
        ('FATAL:  password authentication failed for user "shop"', Fault.PERSON),
        ('FATAL:  database "shop" does not exist', Fault.PERSON),
        ("UnauthorizedError: the token has expired", Fault.PERSON),
        ("Generic S3 error: error sending request for url", Fault.NO_ANSWER),
        ("OSError: [Errno 28] No space left on device", Fault.NO_ANSWER),
        ("503 Slow Down", Fault.NO_ANSWER),
    ],
)
def test_an_error_without_a_code_is_judged_by_its_words(text: str, fault: Fault) -> None:
    assert fault_by_text(text) is fault


def test_an_error_names_what_is_known_and_leaves_the_rest_out() -> None:
    error = destination_error(Fault.ROWS, "unused", destination="db/t", column="x", constraint=None)
    assert isinstance(error, RowsRefusedError)
    assert str(error).endswith("what the destination demands of them. destination=db/t, column=x")
    assert type(destination_error(Fault.NO_ANSWER, "no reply.", destination="db/t")) is DestinationUnavailableError


KINDS: list[tuple[type[CheckpointError], Cause]] = [
    (SourceUnavailableError, Cause.NO_ANSWER),
    (DestinationUnavailableError, Cause.NO_ANSWER),
    (OutsideCodeError, Cause.OUTSIDE),
    (RowsRefusedError, Cause.OUTSIDE),
    (DestinationMismatchError, Cause.OUTSIDE),
    (TopicGoneError, Cause.OUTSIDE),
    (InvalidPipelineError, Cause.CODE),
    (IncompatibleStateError, Cause.CODE),
]


@pytest.mark.parametrize(("kind", "cause"), KINDS)
def test_the_sensor_knows_the_cause_of_each_kind_of_error(kind: type[CheckpointError], cause: Cause) -> None:
    assert RunError.read(kind.__name__, "").cause is cause


def test_each_error_that_is_mended_outside_of_the_code_has_a_cause() -> None:
    def kinds(base: Any) -> set[str]:
        return {base.__name__}.union(*(kinds(each) for each in base.__subclasses__()))

    assert {RunError.read(name, "").cause for name in kinds(OutsideCodeError)} == {Cause.OUTSIDE}
