"""Aggregates of a query: Spark's functions as the engine's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import AggregateSpec, agg, spark_function
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import each_of
from dagster_ckpt.runtime.catalyst.values import Java as Expression
from dagster_ckpt.runtime.plans.functions.collations import without_collations
from dagster_ckpt.runtime.plans.functions.exact_texts import NESTED, has_exact_text, text_of, value_of, values_of

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
    call = without_collations(catalyst, call)
    function, where = call.aggregateFunction(), catalyst.optional(call.filter())
    name = catalyst.kind(function)
    if name == "Count":
        return _count(catalyst, function, where, distinct=bool(call.isDistinct()))
    plain = spark_function(name, of_booleans=_is_boolean(function.children().head()), distinct=bool(call.isDistinct()))
    if call.isDistinct() and plain is None:
        raise _refused(call, "DISTINCT is for count, sum, avg, collect_list and listagg")
    if name in _OF_STRUCTS and not call.isDistinct() and _is_flat_struct(function.children().head()):
        made = _OF_STRUCTS[name](catalyst, function)
    elif name in _OTHERS:
        made = _OTHERS[name](catalyst, call)
    elif plain is not None:
        made = _plain(plain, function)
    else:
        raise _refused(call, _INSTEAD.get(name, _ELSE))
    if name in _OF_TEXTS and _is_nested(made.arguments[0]) and has_exact_text(made.arguments[0].dataType()):
        made = _by_text(catalyst, made, name)
    if any(map(_is_nested, made.arguments)):
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
        if _is_nested(one) and not _is_flat_struct(one) and has_exact_text(one.dataType()):
            one = text_of(catalyst, one)
        return Call([one], lambda names: [agg.count_distinct(names[0])]).where(catalyst, where)
    if len(open_) == 1:
        return Call(open_, lambda names: [agg.count(names[0])]).where(catalyst, where)
    conditions = known if where is None else [where, *known]
    if not conditions:
        return Call([], lambda _: [agg.count()])
    return Call([catalyst.all_of(conditions)], lambda names: [agg.count_if(names[0])])


def _is_boolean(value: Expression) -> bool:
    return str(value.dataType().typeName()) == "boolean"


def _plain(spec: AggregateSpec, function: Expression) -> Call:
    """The function of the same columns."""
    arguments = list(each_of(function.children()))[: 1 + ("other" in spec.options)]
    return Call(arguments, lambda names: [spec.call(*names)])


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


def _is_nested(value: Expression) -> bool:
    return str(value.dataType().typeName()) in NESTED


def _is_flat_struct(value: Expression) -> bool:
    """Whether it is a struct of plain values."""
    type_ = value.dataType()
    if str(type_.typeName()) != "struct":
        return False
    return not any(str(field.dataType().typeName()) in NESTED for field in type_.fields())


def _by_text(catalyst: Catalyst, made: Call, name: str) -> Call:
    """The call over the texts of nested values, of which its value is made again."""
    argument, *others = made.arguments
    type_, of = argument.dataType(), values_of if name in _LISTS else value_of
    arguments = [text_of(catalyst, argument), *others]
    return replace(made, arguments=arguments, value=lambda results: of(catalyst, made.value(results), type_))


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
    by_itself = not order or (len(order) == 1 and order[0].child().semanticEquals(child))
    descends = bool(order) and _all_descend(catalyst, call, order)
    made = _list(catalyst, call) if by_itself else _texts_in_order(catalyst, child, [each.child() for each in order])

    def value(results: Sequence[Expression]) -> Expression:
        texts = made.value(results)
        between = catalyst.cast(delimiter, child.dataType())
        if delimiter.nullable():
            between = expressions.Coalesce(catalyst.seq([between, catalyst.cast(catalyst.text(""), child.dataType())]))
        some = expressions.GreaterThan(expressions.Size(results[0], False), catalyst.constant(0))
        return catalyst.only_if(some, catalyst.joined_text(expressions.Reverse(texts) if descends else texts, between))

    return replace(made, arguments=[child] if by_itself else made.arguments, value=value)


def _all_descend(catalyst: Catalyst, call: Expression, order: Sequence[Expression]) -> bool:
    """Whether the list is in the opposite order of its values. Null is the least of them."""
    descends = {catalyst.kind(each.direction()) == "Descending" for each in order}
    ends = {catalyst.kind(each.nullOrdering()) == "NullsLast" for each in order if each.child().nullable()}
    if len(descends) > 1 or not ends <= descends:
        raise _refused(call, "it orders by columns that all ascend with NULLS FIRST, or all descend with NULLS LAST")
    return descends.pop()


def _texts_in_order(catalyst: Catalyst, child: Expression, order: Sequence[Expression]) -> Call:
    """The texts in the order of other columns, as those come first in a list of structs.

    Each is behind whether it is there, so that a null is the least.
    """
    columns: list[Expression] = []
    there = [[catalyst.expressions.IsNotNull(each), each] if each.nullable() else [each] for each in order]
    for each in (*chain.from_iterable(there), child):
        if not any(each.semanticEquals(column) for column in columns):
            columns.append(each)
    [place] = [place for place, column in enumerate(columns) if column.semanticEquals(child)]

    def texts(results: Sequence[Expression]) -> Expression:
        return catalyst.field_of_each(results[0], place)

    arguments = [_there(catalyst, child), *columns]
    return Call(arguments, lambda names: [agg.collect(names[1:], _NO_LIMIT, by=names[0])], texts)


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
    [argument, *_] = each_of(call.aggregateFunction().children())
    return Call([argument], lambda names: [agg.mode(names[0])])


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
OWN = {*_OTHERS, *_OF_STRUCTS}
"""The classes of Spark's aggregates that have code of their own here."""
_LISTS = ("CollectList", "CollectSet")
_OF_TEXTS = (*_LISTS, "First", "Last", "AnyValue", "MaxBy", "MinBy")
"""Those that return values as they are, in no order of theirs."""
_SKETCH = "a sketch cannot forget a value: use count(DISTINCT x), or approx_count_distinct, which is exact here"
_INSTEAD: Mapping[str, str] = {
    "HistogramNumeric": "count the rows of each bucket: GROUP BY floor(x / width)",
    "CountMinSketchAgg": "count the rows of each value: GROUP BY x",
    "ApproxTopK": "count the rows of each value, and take the first ones: ORDER BY n DESC, x LIMIT k",
    **dict.fromkeys(("HllSketchAgg", "HllUnionAgg", "BitmapConstructAgg", "BitmapOrAgg"), _SKETCH),
}
_ELSE = "use another function, collect_list with a function of the list, or a process function of a Stream"
