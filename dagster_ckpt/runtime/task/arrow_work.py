"""What Arrow computes of columns as Spark does, so that Spark need not take them apart into rows.

Each value has the same meaning in Spark, whatever its settings, or raises `LeftToSparkError` or `pa.ArrowInvalid` where
Spark has to say what it is, such as a sum that overflows. Everything else is Spark's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import flat


class LeftToSparkError(Exception):
    """Spark has to do it, as Arrow may do it otherwise; the message says what it is."""


Values = Any
"""A column, or one value for all rows."""


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """The column at this place."""

    place: int

    def of(self, columns: Sequence[pa.Array]) -> Values:
        return columns[self.place]


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all rows: that of an array of one, since a scalar of a far time cannot be sent to a task."""

    array: pa.Array

    def of(self, columns: Sequence[pa.Array]) -> Values:
        return self.array[0]


@dataclass(frozen=True, slots=True)
class Widened:
    """A number in a type that holds all values of its own; a 64-bit whole number as a double is rounded as in Java."""

    number: "ArrowValue"
    type: pa.DataType

    def of(self, columns: Sequence[pa.Array]) -> Values:
        return self.number.of(columns).cast(self.type, safe=False)


@dataclass(frozen=True, slots=True)
class Remainder:
    """What division by a whole number above 0 leaves, with the sign of what is divided."""

    number: "ArrowValue"
    by: int

    def of(self, columns: Sequence[pa.Array]) -> Values:
        number = self.number.of(columns)
        by = pa.scalar(self.by, number.type)
        # Arrow's division rounds toward 0, as Java's does.
        return pc.subtract(number, pc.multiply(pc.divide(number, by), by))


@dataclass(frozen=True, slots=True)
class ArrowCall:
    """A function of `FUNCTIONS`, by its name there."""

    function: str
    arguments: tuple["ArrowValue", ...]

    def of(self, columns: Sequence[pa.Array]) -> Values:
        return FUNCTIONS[self.function].of(*(each.of(columns) for each in self.arguments))


ArrowValue = ColumnAt | Constant | Widened | Remainder | ArrowCall


@dataclass(frozen=True, slots=True)
class ArrowWork:
    """The columns that a step reads, of the rows for which all conditions hold."""

    values: tuple[ArrowValue, ...]
    where: tuple[ArrowValue, ...] = ()

    @property
    def raises(self) -> bool:
        """Whether Spark may have to say what a value is."""
        return any(FUNCTIONS[part.function].raises for part in self.parts() if isinstance(part, ArrowCall))

    def parts(self) -> Iterator[ArrowValue]:
        """All that is computed."""
        for each in (*self.values, *self.where):
            yield from _parts(each)

    def columns(self, rows: pa.Table) -> tuple[list[pa.Array], int]:
        """The columns, and how many rows they have: those for which no condition is false or null."""
        there, count = [flat(column) for column in rows.columns], rows.num_rows
        if self.where:
            holds = reduce(pc.and_kleene, (each.of(there) for each in self.where))
            if isinstance(holds, pa.Scalar):
                holds = pa.repeat(holds, count)
            kept = pc.indices_nonzero(pc.fill_null(holds, False))
            if len(kept) < count:
                there, count = [column.take(kept) for column in there], len(kept)
        found = (each.of(there) for each in self.values)
        return [pa.repeat(each, count) if isinstance(each, pa.Scalar) else each for each in found], count


def used_columns(work: ArrowWork) -> tuple[ArrowWork, list[int]]:
    """The same work on the columns that it uses alone, and their places among all."""
    used = sorted({part.place for part in work.parts() if isinstance(part, ColumnAt)})
    moved = {place: number for number, place in enumerate(used)}
    values, where = ([_with_places(each, moved) for each in own] for own in (work.values, work.where))
    return ArrowWork(tuple(values), tuple(where)), used


def _with_places(value: ArrowValue, places: Mapping[int, int]) -> ArrowValue:
    match value:
        case ColumnAt(place=place):
            return ColumnAt(places[place])
        case ArrowCall(function=function, arguments=arguments):
            return ArrowCall(function, tuple(_with_places(each, places) for each in arguments))
        case Widened(number=number) | Remainder(number=number):
            return replace(value, number=_with_places(number, places))
        case Constant():
            return value


def _parts(value: ArrowValue) -> Iterator[ArrowValue]:
    """It, and what it is made of."""
    yield value
    match value:
        case ArrowCall(arguments=arguments):
            for each in arguments:
                yield from _parts(each)
        case Widened(number=number) | Remainder(number=number):
            yield from _parts(number)


@dataclass(frozen=True, slots=True)
class ArrowFunction:
    """A function of Spark's in Arrow. `kinds` are those of Spark's types that its arguments may have.

    What `raises` is not for a step's changes, which are made when it is too late to leave them to Spark.
    """

    of: Callable[..., Values]
    kinds: frozenset[str]
    raises: bool = False


_NUMBERS = frozenset({"whole", "real"})
_BOOLEAN = frozenset({"boolean"})
_DATE = frozenset({"date"})
_TEXT = frozenset({"text"})
_ANY = frozenset({"binary", "timestamp"}) | _NUMBERS | _BOOLEAN | _DATE | _TEXT


def _is_real(value: Values) -> bool:
    return bool(pa.types.is_floating(value.type))


def _equal(left: Values, right: Values) -> Values:
    """In Spark NaN equals NaN."""
    equal = pc.equal(left, right)
    return pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right))) if _is_real(left) else equal


def _less(left: Values, right: Values) -> Values:
    """In Spark NaN is greater than all other numbers."""
    less = pc.less(left, right)
    return pc.or_(less, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right))) if _is_real(left) else less


def _same(left: Values, right: Values) -> Values:
    """Equal, or both null."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(_equal(left, right), False))


def _is_in(value: Values, *items: Values) -> Values:
    return reduce(pc.or_kleene, (_equal(value, each) for each in items))


def _case(*parts: Values) -> Values:
    """`WHEN` and `THEN` in turn, then `ELSE` if there is one."""
    pairs, rest = len(parts) // 2, parts[len(parts) // 2 * 2 :]
    result = rest[0] if rest else pa.scalar(None, parts[1].type)
    for place in reversed(range(pairs)):
        holds = pc.fill_null(parts[2 * place], False)
        result = pc.if_else(holds, parts[2 * place + 1], result)
    return result


def _quotient(left: Values, right: Values) -> Values:
    if pc.any(pc.equal(right, 0)).as_py() if isinstance(right, pa.Array) else right.as_py() == 0:
        raise LeftToSparkError("a division by zero")
    return pc.divide(left, right)


def _arithmetic(checked: Callable[..., Values], plain: Callable[..., Values]) -> Callable[..., Values]:
    """Whole numbers that overflow raise; with others nothing is checked."""
    return lambda *numbers: (plain if _is_real(numbers[0]) else checked)(*numbers)


def _part_of_date(part: Callable[..., Values]) -> Callable[..., Values]:
    return lambda date: part(date).cast(pa.int32())


FUNCTIONS: Mapping[str, ArrowFunction] = {
    "Abs": ArrowFunction(_arithmetic(pc.abs_checked, pc.abs), _NUMBERS, raises=True),
    "Add": ArrowFunction(_arithmetic(pc.add_checked, pc.add), _NUMBERS, raises=True),
    "And": ArrowFunction(pc.and_kleene, _BOOLEAN),
    "CaseWhen": ArrowFunction(_case, _ANY),
    "Coalesce": ArrowFunction(pc.coalesce, _ANY),
    "DayOfMonth": ArrowFunction(_part_of_date(pc.day), _DATE),
    "Divide": ArrowFunction(_quotient, frozenset({"real"}), raises=True),
    "EqualNullSafe": ArrowFunction(_same, _ANY),
    "EqualTo": ArrowFunction(_equal, _ANY),
    "GreaterThan": ArrowFunction(lambda left, right: _less(right, left), _ANY),
    "GreaterThanOrEqual": ArrowFunction(lambda left, right: pc.invert(_less(left, right)), _ANY),
    "If": ArrowFunction(_case, _ANY),
    "In": ArrowFunction(_is_in, _ANY),
    "IsNaN": ArrowFunction(lambda value: pc.fill_null(pc.is_nan(value), False), frozenset({"real"})),
    "IsNotNull": ArrowFunction(pc.is_valid, _ANY),
    "IsNull": ArrowFunction(pc.is_null, _ANY),
    "Length": ArrowFunction(pc.utf8_length, _TEXT),
    "LessThan": ArrowFunction(_less, _ANY),
    "LessThanOrEqual": ArrowFunction(lambda left, right: pc.invert(_less(right, left)), _ANY),
    "Month": ArrowFunction(_part_of_date(pc.month), _DATE),
    "Multiply": ArrowFunction(_arithmetic(pc.multiply_checked, pc.multiply), _NUMBERS, raises=True),
    "Not": ArrowFunction(pc.invert, _BOOLEAN),
    "Or": ArrowFunction(pc.or_kleene, _BOOLEAN),
    "Subtract": ArrowFunction(_arithmetic(pc.subtract_checked, pc.subtract), _NUMBERS, raises=True),
    "UnaryMinus": ArrowFunction(_arithmetic(pc.negate_checked, pc.negate), _NUMBERS, raises=True),
    "Year": ArrowFunction(_part_of_date(pc.year), _DATE),
}
"""By the names of Spark's classes of expressions. All arguments of a call are of one type, but for conditions."""
