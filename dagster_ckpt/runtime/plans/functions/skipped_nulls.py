"""Functions over a partition with IGNORE NULLS, and `first` and `last` with FILTER, made of plainer ones.

They are found by how many values there are up to a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import AggregateCall, Expression, Java, Window, WindowCall, WindowSpec
from dagster_ckpt.runtime.plans.functions.over_functions import BESIDE, arguments_of, call_in, ignores_nulls, number_in

Made = tuple[Java, list[Java]]
"""The rows with the other functions, and beside them the values of those that are made."""
_START, _ROW, _END = "UnboundedPreceding", "CurrentRow", "UnboundedFollowing"


def ends_of(call: WindowCall) -> tuple[str, str]:
    """The kinds of the frame's two bounds."""
    return call.over.frame.lower.kind, call.over.frame.upper.kind


def skips_nulls(catalyst: Catalyst, call: WindowCall) -> bool:
    """Whether it is a function that skips rows and that is made here."""
    return _Skipping.of(catalyst, call) is not None


def by_values_so_far(
    catalyst: Catalyst, node: Window, others: Sequence[Expression], skipping: Sequence[Expression]
) -> Made:
    """The functions that skip rows, each beside the rows with what it is found by."""
    found = [each for call in skipping if (each := _Skipping.of(catalyst, call_in(call))) is not None]
    keys = [each.java for each in node.keys]
    counts = [each.count(catalyst) for each in found]
    forward, backward = (
        [count for each, count in zip(found, counts, strict=True) if count is not None and each.is_mirrored is mirrored]
        for mirrored in (False, True)
    )
    plan = node.child.java
    if others or forward:
        order = [each.java for each in node.order]
        plan = catalyst.build.window([*(each.java for each in others), *forward], keys, order, plan)
    if backward:
        plan = catalyst.build.window(backward, keys, list(map(catalyst.calls.opposite, node.order)), plan)
    values = []
    for each, count in zip(found, counts, strict=True):
        plan, value = each.beside(catalyst, plan, None if count is None else catalyst.make.column_of(count))
        values.append(value)
    return plan, values


@dataclass(frozen=True)
class _Skipping:
    """A function of the rows that count, in an order in which its frame begins with the partition.

    `first` is value number `n` of the frame, `last` the last one, and `before` the one `n` values before the row. A row
    counts where `counted` is no null; `value` is null in all others.
    """

    kind: Literal["first", "last", "before"]
    n: int
    value: Java
    counted: Java
    spec: WindowSpec
    is_mirrored: bool
    default: Expression | None = None

    @classmethod
    def of(cls, catalyst: Catalyst, call: WindowCall) -> "_Skipping | None":
        """None: it skips no row, or its frame has no end of the partition."""
        whole = call.function
        called, where = (whole.function, whole.where) if isinstance(whole, AggregateCall) else (whole, None)
        if called.kind not in (*BESIDE, "First", "Last", "NthValue"):
            return None
        if called.kind in BESIDE:
            return cls._of_row(catalyst, call) if ignores_nulls(called) else None
        if ignores_nulls(called):
            return cls._of_frame(catalyst, call, called.kind, None)
        if where is None:
            return None
        # A null that FILTER lets pass is a value.
        return cls._of_frame(catalyst, call, called.kind, catalyst.make.when(where.java, catalyst.make.constant(1)))

    @classmethod
    def _of_row(cls, catalyst: Catalyst, call: WindowCall) -> "_Skipping | None":
        _, offset, default = call.function.children
        number = number_in(catalyst, offset, call)
        ahead = number if call.function.kind == "Lead" else -number
        if ahead == 0:
            return None
        [value] = arguments_of(catalyst, call.function)
        return cls("before", abs(ahead), value, value, call.over, ahead > 0, default)

    @classmethod
    def _of_frame(cls, catalyst: Catalyst, call: WindowCall, name: str, counted: Java | None) -> "_Skipping | None":
        function, (lower, upper) = call.function, ends_of(call)
        kind: Literal["first", "last"] = "first"
        if name in ("First", "NthValue") and lower == _START:
            mirrored = False
        elif name == "Last" and upper == _END:
            mirrored = True
        elif (name, lower, upper) in (("Last", _START, _ROW), ("First", _ROW, _END)):
            kind, mirrored = "last", name == "First"
        else:
            return None
        n = number_in(catalyst, function.children[1], call) if name == "NthValue" else 1
        [value] = arguments_of(catalyst, function)
        return cls(kind, n, value, value if counted is None else counted, call.over, mirrored)

    def count(self, catalyst: Catalyst) -> Java | None:
        """The number of rows that count up to a row, where it is asked for; of the whole partition it is not."""
        count = catalyst.calls.count_of(self.counted)
        if self.kind == "before":
            return catalyst.calls.over_rows(count, self._keys, self._order(catalyst), _ROW)
        frame = self.spec.frame
        if (frame.lower.kind == _START) if self.is_mirrored else (frame.upper.kind == _END):
            return None
        own = catalyst.calls.mirror(self.spec) if self.is_mirrored else self.spec.java
        return catalyst.make.alias(catalyst.calls.over(count, own), "n")

    def beside(self, catalyst: Catalyst, plan: Java, count: Java | None) -> tuple[Java, Java]:
        """The plan with what the function takes beside its rows, and the function's value."""
        if self.kind == "first":
            return self._first(catalyst, plan, count)
        assert count is not None, "only the first ones of a whole partition do without it"
        return self._last(catalyst, plan, count) if self.kind == "last" else self._before(catalyst, plan, count)

    @property
    def _keys(self) -> list[Java]:
        return [each.java for each in self.spec.keys]

    def _order(self, catalyst: Catalyst) -> list[Java]:
        if self.is_mirrored:
            return list(map(catalyst.calls.opposite, self.spec.order))
        return [each.java for each in self.spec.order]

    def _first(self, catalyst: Catalyst, plan: Java, count: Java | None) -> tuple[Java, Java]:
        """That of the partition, if there are so many values in the frame."""
        known_first = [catalyst.calls.ascending(catalyst.make.is_null(self.counted)), *self._order(catalyst)]
        called, last = (
            (catalyst.calls.first_of(self.value), _ROW)
            if self.n == 1
            else (catalyst.calls.nth_of(self.value, self.n), _END)
        )
        first = catalyst.calls.over_rows(called, self._keys, known_first, last)
        plan = catalyst.build.window([first], self._keys, known_first, plan)
        value = catalyst.make.column_of(first)
        if count is None:
            return plan, value
        fewer = catalyst.convert.cast_like(catalyst.make.constant(self.n - 1), count)
        return plan, catalyst.make.when(catalyst.make.greater(count, fewer), value)

    def _last(self, catalyst: Catalyst, plan: Java, count: Java) -> tuple[Java, Java]:
        """The only value of the rows with the same number of values."""
        alike = [*self._keys, count]
        last = catalyst.calls.over_rows(catalyst.calls.greatest_of(self.value), alike, [], _END)
        return catalyst.build.window([last], alike, [], plan), catalyst.make.column_of(last)

    def _before(self, catalyst: Catalyst, plan: Java, count: Java) -> tuple[Java, Java]:
        """In a row with a value, the one `n` rows before among such rows.

        In a row without one, that of the last row with one, which counts itself.
        """
        is_null = catalyst.make.is_null(self.value)
        alike, order = [*self._keys, is_null], self._order(catalyst)
        known = catalyst.calls.over_rows(catalyst.calls.lag_of(self.value, self.n), alike, order, _ROW)
        calls, counted = [known], self.value
        if self.n > 1:
            calls.append(catalyst.calls.over_rows(catalyst.calls.lag_of(self.value, self.n - 1), alike, order, _ROW))
            counted = catalyst.make.column_of(calls[-1])
        plan = catalyst.build.window(calls, alike, order, plan)
        of_known = catalyst.make.when(catalyst.make.is_not_null(self.value), counted)
        last = catalyst.calls.over_rows(catalyst.calls.greatest_of(of_known), [*self._keys, count], [], _END)
        plan = catalyst.build.window([last], [*self._keys, count], [], plan)
        value = catalyst.make.if_else(is_null, catalyst.make.column_of(last), catalyst.make.column_of(known))
        if self.default is None or (self.default.foldable and catalyst.constant_of(self.default) is None):
            return plan, value
        return plan, catalyst.make.first_known(value, self.default.java)
