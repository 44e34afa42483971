"""The process function: a user-defined operator, vectorised.

Reading order. `function` is what the user writes, `process_operator` what the engine runs.

What the user writes
    function          the methods to implement, and their context
    state_kinds       the kinds of state of a key
    user_state/       state and timers as the methods see them, for the keys of a call

How it is run
    process_operator  the operator: the fingerprint, late rows, output
    process_checks    what a function may declare
    process_tables    the tables of the state
    process_epoch     one epoch: when the methods are called, with what, and what expires
    due_timers        the due entries of a timeline
"""

from dagster_ckpt.operators.process.function import ProcessContext, ProcessFunction
from dagster_ckpt.operators.process.process_operator import COUNTERS, NAME, ProcessOperator
from dagster_ckpt.operators.process.state_kinds import ListState, StateKind, ValueState
from dagster_ckpt.operators.process.user_state.keyed_state import KeyedState
from dagster_ckpt.operators.process.user_state.list_state import Lists
from dagster_ckpt.operators.process.user_state.timers import Timers
from dagster_ckpt.operators.process.user_state.value_state import Values

__all__ = [
    "COUNTERS",
    "NAME",
    "KeyedState",
    "ListState",
    "Lists",
    "ProcessContext",
    "ProcessFunction",
    "ProcessOperator",
    "StateKind",
    "Timers",
    "ValueState",
    "Values",
]
