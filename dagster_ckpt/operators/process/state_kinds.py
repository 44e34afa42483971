"""What a process function may keep for each key, as it declares it."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class StateKind:
    """What is kept under one name: its columns, beside those of the key. Any Arrow types, nested ones too."""

    schema: pa.Schema


class ValueState(StateKind):
    """At most one row for each key. Without any column it is a set of keys."""


class ListState(StateKind):
    """Any number of rows for each key, in no order."""
