"""All state of a process function, for the keys of one call."""

from collections.abc import Mapping

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.process.process_tables import size_table, state_table
from dagster_ckpt.operators.process.state_kinds import ListState, StateKind
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys
from dagster_ckpt.operators.process.user_state.list_state import Lists
from dagster_ckpt.operators.process.user_state.timers import Timers
from dagster_ckpt.operators.process.user_state.value_state import Values


class KeyedState:
    """The state of the keys of a call, by its declared names; valid only during that call."""

    def __init__(
        self, declared: Mapping[str, StateKind], state: State, keys: CallKeys, where: str, timers: Timers | None = None
    ) -> None:
        """`where` names the method, at the end of each message. `timers`: None if the function sets none."""
        self._declared = declared
        self._state = state
        self._keys = keys
        self._where = where
        self._timers = timers

    def value(self, name: str) -> Values:
        """The `ValueState` of this name."""
        kind = self._kind(name)
        if isinstance(kind, ListState):
            raise InvalidPipelineError(f"this state is a list: use state.list(name). state={name}, {self._where}")
        return Values(self._state.table(state_table(name)), kind.schema, self._keys, f"state={name}, {self._where}")

    def list(self, name: str) -> Lists:
        """The `ListState` of this name."""
        kind = self._kind(name)
        if not isinstance(kind, ListState):
            raise InvalidPipelineError(f"this state is a value: use state.value(name). state={name}, {self._where}")
        rows, sizes = self._state.table(state_table(name)), self._state.table(size_table(name))
        return Lists(rows, sizes, kind.schema, self._keys, f"state={name}, {self._where}")

    @property
    def timers(self) -> Timers:
        """The timers of the keys."""
        if self._timers is None:
            raise InvalidPipelineError(
                "the function sets no timers: give its class `timers_within`, such as "
                f"timedelta(minutes=10), and its stream an event time by with_watermark(column, delay). {self._where}"
            )
        return self._timers

    def forget(self) -> None:
        """Delete all values and lists of all keys of the call."""
        for name, kind in self._declared.items():
            if isinstance(kind, ListState):
                self.list(name).clear(self._keys.keys)
            else:
                self.value(name).delete(self._keys.keys)

    def _kind(self, name: str) -> StateKind:
        kind = self._declared.get(name)
        if kind is None:
            raise InvalidPipelineError(
                "the function declares no such state: add it to its `state`. "
                f"state={name}, declared={', '.join(self._declared) or 'none'}, {self._where}"
            )
        return kind
