"""Aggregates of a query: Spark's functions as the engine's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import AggregateSpec, agg, spark_function
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import AggregateCall, Expression, Java, SortTerm, SparkType
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

    arguments: Sequence[Java]
    aggregations: Callable[[Sequence[str]], Sequence[Aggregation]]
    value: Callable[[Sequence[Java]], Java] = lambda results: results[0]

    def where(self, catalyst: Catalyst, condition: Expression | None) -> "Call":
        """The call over the rows for which the condition holds."""
        if condition is None:
            return self
        return replace(self, arguments=[catalyst.make.when(condition.java, each) for each in self.arguments])


def call_of(catalyst: Catalyst, call: AggregateCall) -> Call:
    """The engine's aggregates for a call. Raises `InvalidPipelineError` for one that cannot be kept up to date."""
    call = without_collations(catalyst, call)
    function, name = call.function, call.function.kind
    if name == "Count":
        return _count(catalyst, call)
    [first, *_] = function.children
    plain = spark_function(name, of_booleans=first.type.name == "boolean", distinct=call.distinct)
    if call.distinct and plain is None:
        raise _refusal(catalyst, call, "DISTINCT is for count, sum, avg, collect_list and listagg")
    if name in _OF_STRUCTS and not call.distinct and _is_flat_struct(first.type):
        made = _OF_STRUCTS[name](catalyst, function)
    elif name in _OTHERS:
        made = _OTHERS[name](catalyst, call)
    elif plain is not None:
        made = _plain(plain, function)
    else:
        raise _refusal(catalyst, call, _INSTEAD.get(name, _ELSE))
    types = list(catalyst.types_of(made.arguments))
    if name in _OF_TEXTS and _is_nested(types[0]) and has_exact_text(types[0]):
        made = _by_text(catalyst, made, types.pop(0), name)
    if any(map(_is_nested, types)):
        raise _refusal(catalyst, call, "it takes no such nested values: have their parts in columns of their own")
    return made.where(catalyst, call.where)


def _refusal(catalyst: Catalyst, call: AggregateCall, instead: str) -> InvalidPipelineError:
    found = f"{'DISTINCT ' if call.distinct else ''}{catalyst.sql_of(call.java)}"
    return InvalidPipelineError(f"this aggregate cannot be kept up to date: {instead}. found={found}")


def _count(catalyst: Catalyst, call: AggregateCall) -> Call:
    given, where = call.function.children, call.where
    open_ = [each.java for each in given if each.nullable]
    known = list(map(catalyst.make.is_not_null, open_))
    if call.distinct:
        one, type_ = given[0].java, given[0].type
        if len(given) > 1:
            one = catalyst.make.struct([(f"c{at}", each.java) for at, each in enumerate(given)])
            type_ = SparkType("struct", tuple((f"c{at}", each.type) for at, each in enumerate(given)))
            if known:
                one = catalyst.make.when(catalyst.make.all_of(known), one)
        if _is_nested(type_) and not _is_flat_struct(type_) and has_exact_text(type_):
            one = text_of(catalyst, one)
        return Call([one], lambda names: [agg.count_distinct(names[0])]).where(catalyst, where)
    if len(open_) == 1:
        return Call(open_, lambda names: [agg.count(names[0])]).where(catalyst, where)
    conditions = known if where is None else [where.java, *known]
    if not conditions:
        return Call([], lambda _: [agg.count()])
    return Call([catalyst.make.all_of(conditions)], lambda names: [agg.count_if(names[0])])


def _plain(spec: AggregateSpec, function: Expression) -> Call:
    """The function of the same columns."""
    arguments = [each.java for each in function.children[: 1 + ("other" in spec.options)]]
    return Call(arguments, lambda names: [spec.call(*names)])


def _list(catalyst: Catalyst, call: AggregateCall) -> Call:
    """All values. In which order SQL leaves open: in their own."""
    distinct = call.distinct or call.function.kind == "CollectSet"
    make = agg.collect_set if distinct else agg.collect_list
    argument = call.function.children[0].java
    return Call([argument], lambda names: [make(names[0])], lambda results: catalyst.make.without_nulls(results[0]))


def _is_nested(type_: SparkType) -> bool:
    return type_.name in NESTED


def _is_flat_struct(type_: SparkType) -> bool:
    """Whether it is that of structs of plain values."""
    return type_.name == "struct" and not any(_is_nested(each) for _, each in type_.fields)


def _by_text(catalyst: Catalyst, made: Call, type_: SparkType, name: str) -> Call:
    """The call over the texts of nested values of a type, of which its value is made again."""
    argument, *others = made.arguments
    of = values_of if name in _LISTS else value_of
    arguments = [text_of(catalyst, argument), *others]
    return replace(made, arguments=arguments, value=lambda results: of(catalyst, made.value(results), type_))


def _fields(catalyst: Catalyst, value: Expression) -> list[Java]:
    return [catalyst.make.field(value.java, number) for number in range(len(value.type.fields))]


def _struct_of(catalyst: Catalyst, row: Java, places: Sequence[int]) -> Java:
    """A struct of the fields at these places of another; the call's type has their names."""
    return catalyst.make.struct([(f"f{at}", catalyst.make.field(row, place)) for at, place in enumerate(places)])


def _there(catalyst: Catalyst, value: Java) -> Java:
    """True where there is a value, else null: rows without one are skipped by it."""
    return catalyst.make.when(catalyst.make.is_not_null(value), catalyst.make.constant(True))


def _greatest_struct(catalyst: Catalyst, function: Expression) -> Call:
    """The last row by its fields, of which a null is the least."""
    [value] = function.children
    arguments = [_there(catalyst, value.java), *_fields(catalyst, value)]
    return Call(arguments, lambda names: [agg.last(names[1:], by=names[0])])


def _least_struct(catalyst: Catalyst, function: Expression) -> Call:
    """The first row by its fields, each after whether it is there: a null is the least."""
    [value] = function.children
    pairs = [part for each in _fields(catalyst, value) for part in (catalyst.make.is_not_null(each), each)]

    def least(results: Sequence[Java]) -> Java:
        values = _struct_of(catalyst, results[0], range(1, len(pairs), 2))
        return catalyst.make.when(catalyst.make.is_not_null(results[0]), values)

    return Call([_there(catalyst, value.java), *pairs], lambda names: [agg.first(names[1:], by=names[0])], least)


def _list_of_structs(catalyst: Catalyst, function: Expression) -> Call:
    """All structs, in the order of their fields."""
    [value, *_] = function.children
    return Call(
        [_there(catalyst, value.java), *_fields(catalyst, value)],
        lambda names: [agg.collect(names[1:], _NO_LIMIT, by=names[0])],
        lambda results: catalyst.make.without_nulls(results[0]),
    )


def _struct_by(make: Callable[..., Aggregation]) -> Callable[[Catalyst, Expression], Call]:
    """The struct of the row that comes first or last by another value."""

    def call_by(catalyst: Catalyst, function: Expression) -> Call:
        value, by, *_ = function.children
        known, fields = catalyst.make.is_not_null(value.java), _fields(catalyst, value)

        def of(results: Sequence[Java]) -> Java:
            values = _struct_of(catalyst, results[0], range(1, len(fields) + 1))
            return catalyst.make.when(catalyst.make.field(results[0], 0), values)

        return Call([by.java, known, *fields], lambda names: [make(names[1:], by=names[0])], of)

    return call_by


def _text(catalyst: Catalyst, call: AggregateCall) -> Call:
    """The values as one text, between them the delimiter."""
    child, delimiter, *rest = call.function.children
    if child.type.name != "string":
        raise _refusal(catalyst, call, "it joins text alone: use collect_list, or cast the column")
    order = [each for each in rest if isinstance(each, SortTerm)]
    by_itself = not order or (len(order) == 1 and catalyst.are_equal(order[0].by.java, child.java))
    descends = bool(order) and _all_descend(catalyst, call, order)
    made = _list(catalyst, call) if by_itself else _texts_in_order(catalyst, child, [each.by for each in order])

    def value(results: Sequence[Java]) -> Java:
        texts = made.value(results)
        between = catalyst.convert.cast(delimiter.java, child.type)
        if delimiter.nullable:
            between = catalyst.make.first_known(between, catalyst.convert.cast(catalyst.make.text(""), child.type))
        some = catalyst.make.greater(catalyst.make.size(results[0]), catalyst.make.constant(0))
        return catalyst.make.when(
            some, catalyst.make.join_text(catalyst.make.reverse(texts) if descends else texts, between)
        )

    return replace(made, arguments=[child.java] if by_itself else made.arguments, value=value)


def _all_descend(catalyst: Catalyst, call: AggregateCall, order: Sequence[SortTerm]) -> bool:
    """Whether the list is in the opposite order of its values. Null is the least of them."""
    descends = {not each.ascends for each in order}
    ends = {not each.nulls_first for each in order if each.by.nullable}
    if len(descends) > 1 or not ends <= descends:
        instead = "it orders by columns that all ascend with NULLS FIRST, or all descend with NULLS LAST"
        raise _refusal(catalyst, call, instead)
    return descends.pop()


def _texts_in_order(catalyst: Catalyst, child: Expression, order: Sequence[Expression]) -> Call:
    """The texts in the order of other columns, as those come first in a list of structs.

    Each is after whether it is there, so that a null is the least.
    """
    columns: list[Java] = []
    there = [[catalyst.make.is_not_null(each.java), each.java] if each.nullable else [each.java] for each in order]
    for each in (*chain.from_iterable(there), child.java):
        if not any(catalyst.are_equal(each, column) for column in columns):
            columns.append(each)
    [place] = [place for place, column in enumerate(columns) if catalyst.are_equal(column, child.java)]

    def texts(results: Sequence[Java]) -> Java:
        return catalyst.make.field_of_each(results[0], place)

    arguments = [_there(catalyst, child.java), *columns]
    return Call(arguments, lambda names: [agg.collect(names[1:], _NO_LIMIT, by=names[0])], texts)


def _by(make: Callable[..., Aggregation]) -> Callable[[Catalyst, AggregateCall], Call]:
    """The value of the row that comes first or last by another; it may be null, the other not."""

    def call_by(catalyst: Catalyst, call: AggregateCall) -> Call:
        arguments = [each.java for each in call.function.children]
        if len(arguments) > 2:
            raise _refusal(catalyst, call, "it gives one value: for several use row_number() OVER ... <= n")
        return Call(
            arguments,
            lambda names: [make([names[0]], by=names[1])],
            lambda results: catalyst.make.field(results[0], 0),
        )

    return call_by


def _percentiles(make: Callable[[str, float], Aggregation]) -> Callable[[Catalyst, AggregateCall], Call]:
    """One percentile, or an array of several."""

    def call_of_shares(catalyst: Catalyst, call: AggregateCall) -> Call:
        function, (argument, asked, *more) = call.function, call.function.children
        if function.kind == "Percentile" and more[0].constant != 1:
            raise _refusal(
                catalyst, call, "frequencies are not supported: repeat the rows instead, by explode(sequence(1, n))"
            )
        descends = bool(function.fields.get("reverse"))
        if descends and function.kind == "PercentileDisc":
            raise _refusal(catalyst, call, "it ascends alone: leave DESC out")
        found = catalyst.constant_of(asked)
        several = found if isinstance(found, tuple) else (found,)
        shares = [1 - float(each) if descends else float(each) for each in several]

        def value(results: Sequence[Java]) -> Java:
            if not isinstance(found, tuple):
                return results[0]
            # Without values there is no array.
            array = catalyst.make.without_nulls(catalyst.make.array(results))
            return catalyst.make.when(catalyst.make.is_not_null(results[0]), array)

        return Call([argument.java], lambda names: [make(names[0], share) for share in shares], value)

    return call_of_shares


def _mode(catalyst: Catalyst, call: AggregateCall) -> Call:
    # Spark's reverse order is that of the least of several.
    if call.function.fields["reverseOpt"] is False:
        raise _refusal(catalyst, call, "of several values it gives the least: leave DESC out")
    argument = call.function.children[0].java
    return Call([argument], lambda names: [agg.mode(names[0])])


def _pivot(catalyst: Catalyst, call: AggregateCall) -> Call:
    """An array with the one value of each pivot."""
    pivot, column = (each.java for each in call.function.children)
    arguments = [
        catalyst.make.when(catalyst.make.identical(pivot, each), column)
        for each in catalyst.make.pivots_of(call.function)
    ]
    return Call(arguments, lambda names: [agg.max(each) for each in names], catalyst.make.array)


def _times_count(make: Callable[..., Aggregation]) -> Callable[[Catalyst, AggregateCall], Call]:
    """A mean times the number of its rows, which is a sum."""

    def call_of_sum(catalyst: Catalyst, call: AggregateCall) -> Call:
        arguments = [each.java for each in call.function.children]
        known = catalyst.make.all_of(list(map(catalyst.make.is_not_null, arguments)))
        double = arguments[-1]
        return Call(
            [*arguments, catalyst.make.when(known, catalyst.make.constant(1))],
            lambda names: [make(*names[:-1]), agg.count(names[-1])],
            lambda results: catalyst.make.times(results[0], catalyst.convert.cast_like(results[1], double)),
        )

    return call_of_sum


_OTHERS: Mapping[str, Callable[[Catalyst, AggregateCall], Call]] = {
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
