"""The process function: the user's own operator, vectorised.

Reading order. `function` is what the user writes, `process_operator` what the engine runs; the rest is in between.

What the user writes
    function          the methods, and what they are given
    state_kinds       what may be kept for each key
    user_state/       what the methods are given: state and timers of the keys of a call

How it is run
    process_operator  the operator: the fingerprint, late rows, output
    process_checks    what a function may declare
    process_tables    the tables of the state
    epoch/            an epoch: what is called when, and with what
    due_timers        what is due of a timeline
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
