"""Whose fault a destination's error is: of the rows, of something that a person must mend, or of nothing yet.

What no table here names is taken for a request that was not answered, and is tried again.
"""

import re
from enum import Enum, auto

from dagster_ckpt.delivery.destination import DestinationUnavailableError, RowsRefusedError
from dagster_ckpt.errors import CheckpointError, OutsideCodeError


class Fault(Enum):
    """Whose fault an error is."""

    ROWS = auto()
    PERSON = auto()
    NO_ANSWER = auto()


_REFUSED_ROWS = re.compile(r"Invalid data found|failed validation check|Invariant violation|violates? .*constraint")
_DENIED = re.compile(
    r"Forbidden|Access ?Denied|Permission ?denied|Unauthori[sz]ed|Unauthenticated|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|ExpiredToken|InvalidToken|NoSuchBucket|PermissionError"
    r"|authentication failed|no pg_hba.conf entry|(?:role|database) \S+ does not exist"
    r"|[Uu]nsupported (?:reader|writer) (?:feature|version)",
    re.IGNORECASE,
)


def fault_by_text(text: str) -> Fault:
    """The fault of a library's error that has no code: by the words of the stores and table formats that it reaches."""
    if _REFUSED_ROWS.search(text):
        return Fault.ROWS
    return Fault.PERSON if _DENIED.search(text) else Fault.NO_ANSWER


_SQLSTATE = {
    "21": Fault.ROWS,  # a statement would write a row twice
    "22": Fault.ROWS,  # a value that its type does not hold, or text with a zero byte
    "23": Fault.ROWS,  # a constraint
    "44": Fault.ROWS,  # WITH CHECK OPTION of a view
    "P0": Fault.ROWS,  # RAISE in a trigger
    "28": Fault.PERSON,  # user or password
    "3D": Fault.PERSON,  # no such database
    "3F": Fault.PERSON,  # no such schema
    "42501": Fault.PERSON,  # no privilege, or a row-level security policy
}


def fault_by_sqlstate(state: str | None, text: str) -> Fault:
    """The fault of an SQL error; of one without a state, as when a connection is refused, by its text."""
    if not state:
        return fault_by_text(text)
    return _SQLSTATE.get(state) or _SQLSTATE.get(state[:2], Fault.NO_ANSWER)


def destination_error(fault: Fault, silence: str, **facts: object) -> CheckpointError:
    """The error to raise. `silence` says what to check where there was no answer; facts that are None are left out."""
    named = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    match fault:
        case Fault.ROWS:
            return RowsRefusedError(
                "the destination refuses rows of this transaction, and nothing of it was written: correct them in the "
                f"stream, or what the destination demands of them. {named}"
            )
        case Fault.PERSON:
            return OutsideCodeError(
                "the destination refuses the delivery: mend what it names, such as a right or a password. Nothing was "
                f"written, and the delivery goes on by itself then. {named}"
            )
        case Fault.NO_ANSWER:
            return DestinationUnavailableError(f"{silence} {named}")
