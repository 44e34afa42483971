"""Calls of aggregates, and of functions over a partition, with its order and its frame."""

from collections.abc import Sequence

from dagster_ckpt.runtime.catalyst.builders.expressions import ExpressionBuilder
from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.values import Expression, Java, SortTerm, WindowCall, WindowSpec


class CallBuilder:
    """Makes calls, terms of ORDER BY, and windows."""

    def __init__(self, jvm: Packages, make: ExpressionBuilder) -> None:
        self._jvm, self._make = jvm, make

    def over_rows(self, function: Java, keys: Sequence[Java], order: Sequence[Java], last: str) -> Java:
        """A function over the rows of a partition from the first on, up to `last`, as the column `number`."""
        frame, first = self._jvm.expressions.single("RowFrame"), self._jvm.expressions.single("UnboundedPreceding")
        within = self._jvm.expressions.SpecifiedWindowFrame(frame, first, self._jvm.expressions.single(last))
        spec = self._jvm.expressions.WindowSpecDefinition(self._jvm.seq(keys), self._jvm.seq(order), within)
        return self._make.alias(self.over(function, spec), "number")

    def over(self, function: Java, spec: Java) -> Java:
        """A function over a partition."""
        return self._jvm.expressions.WindowExpression(function, spec)

    def without_default(self, call: WindowCall, value: Java | None = None) -> Java:
        """The call of `lag` or `lead` without a default; of another value, if one is given."""
        column, offset, _ = call.function.children
        asked = column.java if value is None else value
        return self.over(
            self._make.with_children(call.function.java, [asked, offset.java, self._make.null_like(asked)]),
            call.over.java,
        )

    def count_of(self, value: Java) -> Java:
        """The number of rows with a value, as a function of an aggregate or a window."""
        return self._call(self._jvm.aggregates.Count(self._jvm.seq([value])))

    def greatest_of(self, value: Java) -> Java:
        """The greatest value, as such a function."""
        return self._call(self._jvm.aggregates.Max(value))

    def first_of(self, value: Java) -> Java:
        """The value of the first row, as such a function."""
        return self._call(self._jvm.aggregates.First(value, False))

    def nth_of(self, value: Java, n: int) -> Java:
        """The value of row number `n`, as a function of a window."""
        return self._jvm.expressions.NthValue(value, self._make.constant(n), False)

    def lag_of(self, value: Java, n: int) -> Java:
        """The value `n` rows before, as a function of a window."""
        return self._jvm.expressions.Lag(value, self._make.constant(n), self._make.null_like(value), False)

    def row_by(self, name: str, value: Java, by: Java) -> Java:
        """`max_by` or `min_by`, by the name of its class: not yet a call."""
        return getattr(self._jvm.aggregates, name)(value, by)

    def _call(self, function: Java) -> Java:
        complete = self._jvm.aggregates.single("Complete")
        return self._jvm.aggregates.AggregateExpression(
            function, complete, False, self._jvm.none, self._jvm.expressions.NamedExpression.newExprId()
        )

    def ascending(self, value: Java) -> Java:
        """A term of ORDER BY."""
        direction, nulls = self._jvm.expressions.single("Ascending"), self._jvm.expressions.single("NullsFirst")
        return self._jvm.expressions.SortOrder(value, direction, nulls, self._jvm.nil)

    def opposite(self, term: SortTerm) -> Java:
        """The term of ORDER BY that puts the last rows first."""
        direction = self._jvm.expressions.single("Descending" if term.ascends else "Ascending")
        nulls = self._jvm.expressions.single("NullsLast" if term.nulls_first else "NullsFirst")
        return self._jvm.expressions.SortOrder(term.by.java, direction, nulls, self._jvm.nil)

    def mirror(self, spec: WindowSpec) -> Java:
        """A window in the opposite order, with a frame of the same rows."""
        unit = self._jvm.expressions.single("RowFrame" if spec.frame.by_rows else "RangeFrame")
        bounds = [self._mirror_bound(each) for each in (spec.frame.upper, spec.frame.lower)]
        within = self._jvm.expressions.SpecifiedWindowFrame(unit, *bounds)
        keys, order = self._jvm.seq(each.java for each in spec.keys), self._jvm.seq(map(self.opposite, spec.order))
        return self._jvm.expressions.WindowSpecDefinition(keys, order, within)

    def _mirror_bound(self, bound: Expression) -> Java:
        mirrored = {"UnboundedPreceding": "UnboundedFollowing", "UnboundedFollowing": "UnboundedPreceding"}
        if bound.kind in mirrored:
            return self._jvm.expressions.single(mirrored[bound.kind])
        return bound.java if bound.kind == "CurrentRow" else self._jvm.expressions.UnaryMinus(bound.java, True)
