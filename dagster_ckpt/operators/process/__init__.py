"""The process function: the user's own operator, vectorised.

Reading order. `function` is what the user writes, `operator` what the engine runs; the rest lies between.

What the user writes
    function      the methods, and what they are told
    kinds         what may be kept for each key

What his methods are given
    keyed_state   all state, by name
    values        one row for each key
    lists         many rows for each key
    timers        when to be called again
    call_keys     for which keys all this is: those of the call

How it is run
    operator      the operator: the fingerprint, late rows, what comes out
    work          an epoch: what is called when, and with what
    calling       a call: what it returns, what it raises
    given         tables from the user's code, checked
    checks        what a function may declare
    expiry        state that is forgotten
    due           what is due of a timeline
    out           what came out while rows were taken in
    layout        the state's tables
"""

from dagster_ckpt.operators.process.function import ProcessContext, ProcessFunction
from dagster_ckpt.operators.process.keyed_state import KeyedState
from dagster_ckpt.operators.process.kinds import ListState, StateKind, ValueState
from dagster_ckpt.operators.process.lists import Lists
from dagster_ckpt.operators.process.operator import COUNTERS, NAME, ProcessOperator
from dagster_ckpt.operators.process.timers import Timers
from dagster_ckpt.operators.process.values import Values

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
