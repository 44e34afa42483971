"""Functions over a partition with IGNORE NULLS, and `first` and `last` with FILTER, made of plainer ones.

They are found by how many values there are up to a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import each_of
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.plans.functions.over_functions import BESIDE, arguments_of, number_in

Made = tuple[Java, list[Java]]
"""The rows with the other functions, and beside them the values of those that are made."""
_START, _ROW, _END = "UnboundedPreceding", "CurrentRow", "UnboundedFollowing"


def ends_of(catalyst: Catalyst, call: Java) -> tuple[str, str]:
    """The kinds of the frame's two bounds."""
    frame = call.windowSpec().frameSpecification()
    return catalyst.kind(frame.lower()), catalyst.kind(frame.upper())


def skips_nulls(catalyst: Catalyst, call: Java) -> bool:
    """Whether it is a function that skips rows and that is made here."""
    return _Skipping.of(catalyst, call) is not None


def by_values_so_far(catalyst: Catalyst, node: Java, others: Sequence[Java], skipping: Sequence[Java]) -> Made:
    """The functions that skip rows, each beside the rows with what it is found by."""
    found = [each for call in skipping if (each := _Skipping.of(catalyst, call.child())) is not None]
    keys, order = list(each_of(node.partitionSpec())), list(each_of(node.orderSpec()))
    counts = [each.count(catalyst) for each in found]
    forward, backward = (
        [count for each, count in zip(found, counts, strict=True) if count is not None and each.mirrored is mirrored]
        for mirrored in (False, True)
    )
    plan = node.child()
    if others or forward:
        plan = catalyst.window([*others, *forward], keys, order, plan)
    if backward:
        plan = catalyst.window(backward, keys, [catalyst.opposite(each) for each in order], plan)
    values = []
    for each, count in zip(found, counts, strict=True):
        plan, value = each.beside(catalyst, plan, None if count is None else count.toAttribute())
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
    spec: Java
    mirrored: bool
    default: Java | None = None

    @classmethod
    def of(cls, catalyst: Catalyst, call: Java) -> "_Skipping | None":
        """None: it skips no row, or its frame has no end of the partition."""
        function, where = call.windowFunction(), None
        called = function
        if catalyst.kind(function) == "AggregateExpression":
            called, where = function.aggregateFunction(), catalyst.optional(function.filter())
        name = catalyst.kind(called)
        if name not in (*BESIDE, "First", "Last", "NthValue") or not (called.ignoreNulls() or where is not None):
            return None
        if name in BESIDE:
            return cls._beside_row(catalyst, call)
        # A null that FILTER lets pass is a value.
        counted = None if called.ignoreNulls() else catalyst.only_if(where, catalyst.constant(1))
        return cls._of_frame(catalyst, call, name, counted)

    @classmethod
    def _beside_row(cls, catalyst: Catalyst, call: Java) -> "_Skipping | None":
        function, spec = call.windowFunction(), call.windowSpec()
        ahead = number_in(function.offset(), call)
        if ahead == 0:
            return None
        [value], turned = arguments_of(catalyst, function), ahead > 0
        own = catalyst.mirrored(spec) if turned else spec
        return cls("before", abs(ahead), value, value, own, turned, function.default())

    @classmethod
    def _of_frame(cls, catalyst: Catalyst, call: Java, name: str, counted: Java | None) -> "_Skipping | None":
        function, spec, (lower, upper) = call.windowFunction(), call.windowSpec(), ends_of(catalyst, call)
        kind: Literal["first", "last"] = "first"
        if name in ("First", "NthValue") and lower == _START:
            turned = False
        elif name == "Last" and upper == _END:
            turned = True
        elif (name, lower, upper) in (("Last", _START, _ROW), ("First", _ROW, _END)):
            kind, turned = "last", name == "First"
        else:
            return None
        [value], n = arguments_of(catalyst, function), number_in(function.offset(), call) if name == "NthValue" else 1
        own = catalyst.mirrored(spec) if turned else spec
        return cls(kind, n, value, value if counted is None else counted, own, turned)

    def count(self, catalyst: Catalyst) -> Java | None:
        """The number of rows that count up to a row, where it is asked for; of the whole partition it is not."""
        count = catalyst.count_of(self.counted)
        if self.kind == "before":
            return catalyst.over_rows(count, self._keys, self._order, _ROW)
        if catalyst.kind(self.spec.frameSpecification().upper()) == _END:
            return None
        return catalyst.alias(catalyst.expressions.WindowExpression(count, self.spec), "n")

    def beside(self, catalyst: Catalyst, plan: Java, count: Java | None) -> tuple[Java, Java]:
        """The plan with what the function takes beside its rows, and the function's value."""
        if self.kind == "first":
            return self._first(catalyst, plan, count)
        assert count is not None, "only the first ones of a whole partition do without it"
        return self._last(catalyst, plan, count) if self.kind == "last" else self._before(catalyst, plan, count)

    @property
    def _keys(self) -> list[Java]:
        return list(each_of(self.spec.partitionSpec()))

    @property
    def _order(self) -> list[Java]:
        return list(each_of(self.spec.orderSpec()))

    def _first(self, catalyst: Catalyst, plan: Java, count: Java | None) -> tuple[Java, Java]:
        """That of the partition, if there are so many values in the frame."""
        known_first = [catalyst.ascending(catalyst.expressions.IsNull(self.counted)), *self._order]
        called, last = (
            (catalyst.first_of(self.value), _ROW) if self.n == 1 else (catalyst.nth_of(self.value, self.n), _END)
        )
        first = catalyst.over_rows(called, self._keys, known_first, last)
        plan = catalyst.window([first], self._keys, known_first, plan)
        value = first.toAttribute()
        if count is None:
            return plan, value
        fewer = catalyst.cast(catalyst.constant(self.n - 1), count.dataType())
        return plan, catalyst.only_if(catalyst.expressions.GreaterThan(count, fewer), value)

    def _last(self, catalyst: Catalyst, plan: Java, count: Java) -> tuple[Java, Java]:
        """The only value of the rows with the same number of values."""
        alike = [*self._keys, count]
        last = catalyst.over_rows(catalyst.greatest_of(self.value), alike, [], _END)
        return catalyst.window([last], alike, [], plan), last.toAttribute()

    def _before(self, catalyst: Catalyst, plan: Java, count: Java) -> tuple[Java, Java]:
        """Of a row with a value, the one `n` rows before among such rows.

        Of a row without one, that of the last row with one, which counts itself.
        """
        is_null = catalyst.expressions.IsNull(self.value)
        alike = [*self._keys, is_null]
        known = catalyst.over_rows(catalyst.lag_of(self.value, self.n), alike, self._order, _ROW)
        calls, counted = [known], self.value
        if self.n > 1:
            calls.append(catalyst.over_rows(catalyst.lag_of(self.value, self.n - 1), alike, self._order, _ROW))
            counted = calls[-1].toAttribute()
        plan = catalyst.window(calls, alike, self._order, plan)
        of_known = catalyst.only_if(catalyst.expressions.IsNotNull(self.value), counted)
        last = catalyst.over_rows(catalyst.greatest_of(of_known), [*self._keys, count], [], _END)
        plan = catalyst.window([last], [*self._keys, count], [], plan)
        value = catalyst.expressions.If(is_null, last.toAttribute(), known.toAttribute())
        if self.default is None or (self.default.foldable() and self.default.eval(None) is None):
            return plan, value
        return plan, catalyst.expressions.Coalesce(catalyst.seq([value, self.default]))
