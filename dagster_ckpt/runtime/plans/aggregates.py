"""Aggregates of a query: Spark's functions as the engine's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression

_NESTED = ("array", "map", "struct", "variant")
_NO_LIMIT = 2**31 - 1
"""More values than a list can have."""


@dataclass(frozen=True)
class Call:
    """A call of a query as the engine's aggregates.

    It reads `arguments`, null where it is to skip the row; `aggregations` takes the names of these columns; `value`
    makes the call's value of the results.
    """

    arguments: Sequence[Expression]
    aggregations: Callable[[Sequence[str]], Sequence[Aggregation]]
    value: Callable[[Sequence[Expression]], Expression] = lambda results: results[0]

    def where(self, catalyst: Catalyst, condition: Expression | None) -> "Call":
        """The call over the rows for which the condition holds."""
        if condition is None:
            return self
        return replace(self, arguments=[catalyst.only_if(condition, each) for each in self.arguments])


def call_of(catalyst: Catalyst, call: Expression) -> Call:
    """The engine's aggregates for a call. Raises `InvalidPipelineError` for one that cannot be kept up to date."""
    function, where = call.aggregateFunction(), catalyst.optional(call.filter())
    name = catalyst.kind(function)
    if name == "Count":
        return _count(catalyst, function, where, distinct=bool(call.isDistinct()))
    if call.isDistinct() and name not in (*_OF_DISTINCT, *_IDEMPOTENT):
        raise _refused(call, "DISTINCT is for count, sum, avg, collect_list and listagg")
    if name in _OF_STRUCTS and not call.isDistinct() and _is_struct(function.children().head()):
        made = _OF_STRUCTS[name](catalyst, function)
    elif name in _OF_ONE:
        made = _of_one(_OF_DISTINCT.get(name, _OF_ONE[name]) if call.isDistinct() else _OF_ONE[name], function)
    elif name in _OF_TWO:
        make, [one, other] = _OF_TWO[name], each_of(function.children())
        made = Call([one, other], lambda names: [make(names[0], names[1])])
    elif name in _OTHERS:
        made = _OTHERS[name](catalyst, call)
    else:
        raise _refused(call, _INSTEAD.get(name, _ELSE))
    for each in made.arguments:
        if str(each.dataType().typeName()) in _NESTED:
            raise _refused(call, "it takes no such nested values: have their parts in columns of their own")
    return made.where(catalyst, where)


def _refused(call: Expression, instead: str) -> InvalidPipelineError:
    distinct = "DISTINCT " if call.isDistinct() else ""
    return InvalidPipelineError(f"this aggregate cannot be kept up to date: {instead}. found={distinct}{call.sql()}")


def _count(catalyst: Catalyst, function: Expression, where: Expression | None, *, distinct: bool) -> Call:
    given = list(each_of(function.children()))
    open_ = [each for each in given if each.nullable()]
    known = [catalyst.expressions.IsNotNull(each) for each in open_]
    if distinct:
        one = given[0] if len(given) == 1 else catalyst.struct([(f"c{at}", each) for at, each in enumerate(given)])
        if len(given) > 1 and known:
            one = catalyst.only_if(catalyst.all_of(known), one)
        return Call([one], lambda names: [agg.count_distinct(names[0])]).where(catalyst, where)
    if len(open_) == 1:
        return Call(open_, lambda names: [agg.count(names[0])]).where(catalyst, where)
    conditions = known if where is None else [where, *known]
    if not conditions:
        return Call([], lambda _: [agg.count()])
    return Call([catalyst.all_of(conditions)], lambda names: [agg.count_if(names[0])])


def _of_one(make: Callable[[str], Aggregation], function: Expression) -> Call:
    [argument, *_] = each_of(function.children())
    if str(argument.dataType().typeName()) == "boolean":
        make = _OF_BOOLEANS.get(make, make)
    return Call([argument], lambda names: [make(names[0])])


def _list(catalyst: Catalyst, call: Expression) -> Call:
    """All values. In which order SQL leaves open: in their own."""
    function = call.aggregateFunction()
    distinct = call.isDistinct() or catalyst.kind(function) == "CollectSet"
    make = agg.collect_set if distinct else agg.collect_list
    [argument, *_] = each_of(function.children())
    return Call(
        [argument],
        lambda names: [make(names[0])],
        lambda results: catalyst.expressions.KnownNotContainsNull(results[0]),
    )


def _is_struct(value: Expression) -> bool:
    return str(value.dataType().typeName()) == "struct"


def _fields(catalyst: Catalyst, value: Expression) -> list[Expression]:
    return [catalyst.field(value, number) for number in range(len(value.dataType().fields()))]


def _struct_of(catalyst: Catalyst, row: Expression, places: Sequence[int]) -> Expression:
    """A struct of the fields at these places of another; the call's type has their names."""
    return catalyst.struct([(f"f{at}", catalyst.field(row, place)) for at, place in enumerate(places)])


def _there(catalyst: Catalyst, value: Expression) -> Expression:
    """True where there is a value, else null: rows without one are skipped by it."""
    return catalyst.only_if(catalyst.expressions.IsNotNull(value), catalyst.constant(True))


def _greatest_struct(catalyst: Catalyst, function: Expression) -> Call:
    """The last row by its fields, of which a null is the least."""
    [value] = each_of(function.children())
    arguments = [_there(catalyst, value), *_fields(catalyst, value)]
    return Call(arguments, lambda names: [agg.last(names[1:], by=names[0])])


def _least_struct(catalyst: Catalyst, function: Expression) -> Call:
    """The first row by its fields, each behind whether it is there: a null is the least."""
    [value] = each_of(function.children())
    pairs = [part for each in _fields(catalyst, value) for part in (catalyst.expressions.IsNotNull(each), each)]

    def least(results: Sequence[Expression]) -> Expression:
        values = _struct_of(catalyst, results[0], range(1, len(pairs), 2))
        return catalyst.only_if(catalyst.expressions.IsNotNull(results[0]), values)

    return Call([_there(catalyst, value), *pairs], lambda names: [agg.first(names[1:], by=names[0])], least)


def _list_of_structs(catalyst: Catalyst, function: Expression) -> Call:
    """All structs, in the order of their fields."""
    [value, *_] = each_of(function.children())
    return Call(
        [_there(catalyst, value), *_fields(catalyst, value)],
        lambda names: [agg.collect(names[1:], _NO_LIMIT, by=names[0])],
        lambda results: catalyst.expressions.KnownNotContainsNull(results[0]),
    )


def _struct_by(make: Callable[..., Aggregation]) -> Callable[[Catalyst, Expression], Call]:
    """The struct of the row that comes first or last by another value."""

    def made(catalyst: Catalyst, function: Expression) -> Call:
        value, by, *_ = each_of(function.children())
        known, fields = catalyst.expressions.IsNotNull(value), _fields(catalyst, value)

        def of(results: Sequence[Expression]) -> Expression:
            values = _struct_of(catalyst, results[0], range(1, len(fields) + 1))
            return catalyst.only_if(catalyst.field(results[0], 0), values)

        return Call([by, known, *fields], lambda names: [make(names[1:], by=names[0])], of)

    return made


def _text(catalyst: Catalyst, call: Expression) -> Call:
    """The values as one text, between them the delimiter."""
    function, expressions = call.aggregateFunction(), catalyst.expressions
    child, delimiter, order = function.child(), function.delimiter(), list(each_of(function.orderExpressions()))
    if str(child.dataType().typeName()) != "string":
        raise _refused(call, "it joins text alone: use collect_list, or cast the column")
    if order and (len(order) > 1 or not order[0].child().semanticEquals(child)):
        raise _refused(
            call, "it orders the values by themselves alone: order it so, or use a process function of a Stream"
        )
    descends = bool(order) and catalyst.kind(order[0].direction()) == "Descending"
    made = _list(catalyst, call)

    def value(results: Sequence[Expression]) -> Expression:
        listed = expressions.Reverse(results[0]) if descends else results[0]
        between = catalyst.cast(delimiter, child.dataType())
        if delimiter.nullable():
            between = expressions.Coalesce(catalyst.seq([between, catalyst.cast(catalyst.text(""), child.dataType())]))
        some = expressions.GreaterThan(expressions.Size(results[0], False), catalyst.constant(0))
        return catalyst.only_if(some, catalyst.joined_text(listed, between))

    return replace(made, arguments=[child], value=value)


def _by(make: Callable[..., Aggregation]) -> Callable[[Catalyst, Expression], Call]:
    """The value of the row that comes first or last by another; it may be null, the other not."""

    def made(catalyst: Catalyst, call: Expression) -> Call:
        arguments = list(each_of(call.aggregateFunction().children()))
        if len(arguments) > 2:
            raise _refused(call, "it gives one value: for several use row_number() OVER ... <= n")
        return Call(
            arguments,
            lambda names: [make([names[0]], by=names[1])],
            lambda results: catalyst.field(results[0], 0),
        )

    return made


def _percentiles(make: Callable[[str, float], Aggregation]) -> Callable[[Catalyst, Expression], Call]:
    """One percentile, or an array of several."""

    def made(catalyst: Catalyst, call: Expression) -> Call:
        function = call.aggregateFunction()
        argument, asked = function.child(), function.percentageExpression()
        if catalyst.kind(function) == "Percentile":
            often = function.frequencyExpression()
            if not often.foldable() or often.eval(None) != 1:
                raise _refused(call, "it has no frequencies: have as many rows, by explode(sequence(1, n))")
        descends = catalyst.kind(function) in ("Percentile", "PercentileDisc") and bool(function.reverse())
        if descends and catalyst.kind(function) == "PercentileDisc":
            raise _refused(call, "it ascends alone: leave DESC out")
        found = asked.eval(None)
        several = [found] if isinstance(found, float) else [float(each) for each in found.toDoubleArray()]
        shares = [1 - each if descends else each for each in several]

        def value(results: Sequence[Expression]) -> Expression:
            if isinstance(found, float):
                return results[0]
            # Without values there is no array.
            some = catalyst.expressions.IsNotNull(results[0])
            return catalyst.only_if(some, catalyst.expressions.KnownNotContainsNull(catalyst.array(results)))

        return Call([argument], lambda names: [make(names[0], share) for share in shares], value)

    return made


def _mode(catalyst: Catalyst, call: Expression) -> Call:
    # Spark's reverse order is that of the least of several.
    if catalyst.optional(call.aggregateFunction().reverseOpt()) is False:
        raise _refused(call, "of several values it gives the least: leave DESC out")
    return _of_one(agg.mode, call.aggregateFunction())


def _pivot(catalyst: Catalyst, call: Expression) -> Call:
    """An array with the one value of each pivot."""
    function, expressions = call.aggregateFunction(), catalyst.expressions
    pivot, values = function.pivotColumn(), function.pivotColumnValues()
    pivots = catalyst.array_of(values, pivot.dataType())
    arguments = []
    for place in range(values.size()):
        here = expressions.EqualNullSafe(pivot, expressions.GetArrayItem(pivots, catalyst.constant(place), False))
        arguments.append(catalyst.only_if(here, function.valueColumn()))
    return Call(arguments, lambda names: [agg.max(each) for each in names], catalyst.array)


def _times_count(make: Callable[..., Aggregation]) -> Callable[[Catalyst, Expression], Call]:
    """A mean times the number of its rows, which is a sum."""

    def made(catalyst: Catalyst, call: Expression) -> Call:
        arguments = list(each_of(call.aggregateFunction().children()))
        known = catalyst.all_of([catalyst.expressions.IsNotNull(each) for each in arguments])
        *_, double = [each.dataType() for each in arguments]
        return Call(
            [*arguments, catalyst.only_if(known, catalyst.constant(1))],
            lambda names: [make(*names[:-1]), agg.count(names[-1])],
            lambda results: catalyst.expressions.Multiply(results[0], catalyst.cast(results[1], double)),
        )

    return made


_OF_ONE: Mapping[str, Callable[[str], Aggregation]] = {
    "Sum": agg.sum,
    "Average": agg.avg,
    "Min": agg.min,
    "Max": agg.max,
    "First": agg.min,
    "Last": agg.max,
    "AnyValue": agg.min,
    "StddevSamp": agg.stddev,
    "StddevPop": agg.stddev_pop,
    "VarianceSamp": agg.variance,
    "VariancePop": agg.var_pop,
    "Skewness": agg.skewness,
    "Kurtosis": agg.kurtosis,
    "BitAndAgg": agg.bit_and,
    "BitOrAgg": agg.bit_or,
    "BitXorAgg": agg.bit_xor,
    "HyperLogLogPlusPlus": agg.count_distinct,
}
"""By the name of Spark's class. Which row is the first or the last of a group SQL leaves open: any value will do.

An exact number of distinct values is within the error that is asked for.
"""
_OF_BOOLEANS: Mapping[Callable[[str], Aggregation], Callable[[str], Aggregation]] = {
    agg.min: agg.bool_and,
    agg.max: agg.bool_or,
}
"""False is before true, so these are the same, and two counts are less than each value."""
_OF_DISTINCT: Mapping[str, Callable[[str], Aggregation]] = {"Sum": agg.sum_distinct, "Average": agg.avg_distinct}
_OF_TWO: Mapping[str, Callable[[str, str], Aggregation]] = {
    "Corr": agg.corr,
    "CovPopulation": agg.covar_pop,
    "CovSample": agg.covar_samp,
    "RegrSlope": agg.regr_slope,
    "RegrIntercept": agg.regr_intercept,
    "RegrR2": agg.regr_r2,
}
_OTHERS: Mapping[str, Callable[[Catalyst, Expression], Call]] = {
    "ApproximatePercentile": _percentiles(agg.percentile_disc),
    "CollectList": _list,
    "CollectSet": _list,
    "ListAgg": _text,
    "MaxBy": _by(agg.last),
    "MinBy": _by(agg.first),
    "Mode": _mode,
    "Percentile": _percentiles(agg.percentile),
    "PercentileDisc": _percentiles(agg.percentile_disc),
    "PivotFirst": _pivot,
    "RegrReplacement": _times_count(agg.var_pop),
    "RegrSXY": _times_count(agg.covar_pop),
}
_OF_STRUCTS: Mapping[str, Callable[[Catalyst, Expression], Call]] = {
    "CollectList": _list_of_structs,
    "Max": _greatest_struct,
    "MaxBy": _struct_by(agg.last),
    "Min": _least_struct,
    "MinBy": _struct_by(agg.first),
}
"""Those that take structs, whose fields are columns of the engine's aggregate."""
_IDEMPOTENT = (
    "Min",
    "Max",
    "First",
    "Last",
    "AnyValue",
    "BitAndAgg",
    "BitOrAgg",
    "CollectList",
    "CollectSet",
    "HyperLogLogPlusPlus",
    "ListAgg",
)
"""Functions that can be of distinct values: it makes no difference to most how often a value is there."""
_SKETCH = "a sketch cannot forget a value: use count(DISTINCT x), or approx_count_distinct, which is exact here"
_INSTEAD: Mapping[str, str] = {
    "HistogramNumeric": "count the rows of each bucket: GROUP BY floor(x / width)",
    "CountMinSketchAgg": "count the rows of each value: GROUP BY x",
    "ApproxTopK": "count the rows of each value, and take the first ones: ORDER BY n DESC, x LIMIT k",
    **dict.fromkeys(("HllSketchAgg", "HllUnionAgg", "BitmapConstructAgg", "BitmapOrAgg"), _SKETCH),
}
_ELSE = "use another function, collect_list with a function of the list, or a process function of a Stream"
