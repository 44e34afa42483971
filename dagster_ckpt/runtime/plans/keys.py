"""Keys of a query as columns that a step can have as keys, and rows as columns of which none is there twice.

And what identifies the rows of a query's table: columns that determine the key of its last step.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst, NodeColumns
from dagster_ckpt.runtime.catalyst.query_plan import column_number
from dagster_ckpt.runtime.catalyst.values import Java, Join, Node
from dagster_ckpt.runtime.plans.functions.exact_texts import has_exact_text, text_of, value_of

FLOATS = ("float", "double")


@dataclass(frozen=True)
class Dependency:
    """Among columns of a step: the values of these follow from those of `by`, as a window's end from its start."""

    by: frozenset[str]
    columns: frozenset[str]


def key_among(
    there: Mapping[str, str], key: Collection[str], dependencies: Sequence[Dependency]
) -> tuple[str, ...] | None:
    """The names of columns that identify a row, as few as possible, the first ones before later ones; None: none do.

    `there` has the name in the table of each column of the step that it has, in the table's order, and `key` identifies
    a row of the step.
    """
    of_use = set(key).union(*(each.by for each in dependencies))
    chosen = [column for column in there if column in of_use]
    if not set(key) <= _closure(chosen, dependencies):
        return None
    for column in reversed(chosen):
        fewer = [each for each in chosen if each != column]
        if set(key) <= _closure(fewer, dependencies):
            chosen = fewer
    return tuple(there[column] for column in chosen)


def _closure(columns: Iterable[str], dependencies: Sequence[Dependency]) -> set[str]:
    found, before = set(columns), -1
    while len(found) > before:
        before = len(found)
        found = found.union(*(each.columns for each in dependencies if each.by <= found))
    return found


@dataclass(frozen=True)
class RowColumns:
    """The rows of a node as columns of a step: their expressions and the attributes they stand for, by name.

    `stand` has, for each column of the node by Spark's number, the name that it has in the step.
    """

    expressions: dict[str, Java]
    attributes: dict[str, Java]
    stand: dict[int, str]

    @classmethod
    def of(
        cls,
        catalyst: Catalyst,
        leading: Mapping[str, Java],
        output: NodeColumns,
        names: Sequence[str],
    ) -> "RowColumns":
        """What leads, such as keys, by its names, in that order; then the columns of the node, in that of theirs.

        A column of the node that leads as it is has the same bytes there, so it does not follow once more. One that is
        computed for a key, such as the text of a floating-point number, does not stand for its column.
        """
        of_output = dict(zip(output.numbers, names, strict=True))
        leads = dict[str, str]()
        for name, each in leading.items():
            if is_column(catalyst, each) and (own := of_output.get(column_number(each))) is not None:
                leads.setdefault(own, name)
        expressions, attributes, stand = dict(leading), dict[str, Java](), dict[int, str]()
        for own, number, each in sorted(zip(names, output.numbers, output, strict=True), key=itemgetter(0)):
            stand[number] = name = leads.get(own, own)
            expressions.setdefault(name, each)
            attributes.setdefault(name, each)
        made = {
            name: catalyst.alias(each, name).toAttribute()
            for name, each in expressions.items()
            if name not in attributes
        }
        return cls(expressions, {name: (attributes | made)[name] for name in expressions}, stand)

    def beside(self, other: "RowColumns") -> "RowColumns":
        """The columns of both, as a join emits them: one of a name that both have is this one."""
        return RowColumns(
            self.expressions,
            self.attributes | {name: each for name, each in other.attributes.items() if name not in self.attributes},
            self.stand | other.stand,
        )

    def with_column(self, catalyst: Catalyst, name: str, value: Java) -> "RowColumns":
        """The columns, and one that is none of the node's."""
        attribute = catalyst.alias(value, name).toAttribute()
        return RowColumns(self.expressions | {name: value}, self.attributes | {name: attribute}, self.stand)

    def shown(self, catalyst: Catalyst, output: NodeColumns) -> list[Java]:
        """The columns of the node, of the attributes."""
        pairs = zip(output.numbers, output, strict=True)
        return [catalyst.show(self.attributes[self.stand[number]], each) for number, each in pairs]


def meets_all(catalyst: Catalyst, join: Join) -> bool:
    """Whether each row of either side of a join is compared with all of the other: no key is equal.

    Not where a side is one row at most, or constants.
    """
    left_keys, _, _ = catalyst.equi_join_of(join.java)
    return not left_keys and not any(not each.streams or catalyst.has_at_most(1, each.java) for each in join.children)


def is_column(catalyst: Catalyst, expression: Java) -> bool:
    """Whether the expression is a column as it is."""
    return catalyst.kind(expression) == "AttributeReference"


def is_time_window(attribute: Java) -> bool:
    """Whether a column is what Spark has made of `window(...)`."""
    return "spark.timeWindow" in str(attribute.metadata().json())


def is_never_null(attribute: Java, rows: Node) -> bool:
    """Whether a column of these rows has no nulls: as Spark knows, or because no row is in a window that is null.

    An outer join above the window makes nulls.
    """
    if not attribute.nullable():
        return True
    if not is_time_window(attribute):
        return False
    number = column_number(attribute)
    while len(rows.children) == 1:
        rows = rows.child
        if number not in {each for _, each in rows.output}:
            return True
    return False


@dataclass(frozen=True)
class Key:
    """An expression of a key. A step has `columns` for it; `value` makes the expression again of these.

    `never_null` is what is known of the rows below: Spark itself may know less.
    """

    catalyst: Catalyst
    expression: Java
    never_null: bool = False

    def columns(self) -> list[Java]:
        """What the step has as keys: a struct's fields, and of a type that is no key its text, which is exact.

        There is one zero and one NaN, as in GROUP BY. Text with a collation is compared by it, so the step has its key.
        """
        return list(self._columns(self.expression))

    @property
    def is_collated(self) -> bool:
        """Whether texts that differ may be one key, so that `value` cannot make them again."""
        return self.catalyst.is_collated(self.expression.dataType())

    def value(self, columns: Sequence[Java]) -> Java:
        """The key's value, from the step's columns, if it is not collated."""
        return self._value(self.expression.dataType(), iter(columns), whole=True)

    def dependencies(self, names: Sequence[str]) -> list[Dependency]:
        """What follows from what among the step's columns, by their names."""
        if str(self.expression.dataType().typeName()) != "struct" or not self.never_null:
            return []
        whole, *fields = ([each] for each in names)
        found = [Dependency(frozenset(), frozenset(whole))]
        if is_time_window(self.expression):
            pairs = [fields, fields[::-1]]  # its size is the same for all
            found += [Dependency(frozenset(one), frozenset(other)) for one, other in pairs]
        return found

    def _columns(self, expression: Java) -> Iterator[Java]:
        catalyst = self.catalyst
        if str(expression.dataType().typeName()) != "struct":
            expression = catalyst.by_collation(expression)
        type_ = expression.dataType()
        name = str(type_.typeName())
        if name == "struct":
            yield catalyst.expressions.IsNull(expression)
            for number in range(len(type_.fields())):
                yield from self._columns(catalyst.field(expression, number))
        elif name == "array" and has_exact_text(type_):
            yield text_of(catalyst, expression)
        elif name in ("array", "map", "variant"):
            raise InvalidPipelineError(
                "rows are not brought together by values of this type: group or join by its parts. "
                f"found={expression.sql()}, type={type_.simpleString()}"
            )
        elif name in FLOATS:
            yield catalyst.cast(catalyst.one_zero(expression), catalyst.type_of("string"))
        elif name.startswith("interval "):
            yield catalyst.cast(expression, catalyst.type_of("string"))
        else:
            yield expression

    def _value(self, type_: object, columns: Iterator[Java], *, whole: bool = False) -> Java:
        catalyst = self.catalyst
        kind = str(type_.typeName())  # type: ignore[attr-defined]  # in the JVM
        if kind == "array":
            return value_of(catalyst, next(columns), type_)
        if kind != "struct":
            return catalyst.cast(next(columns), type_)
        is_null = next(columns)
        fields = list(type_.fields())  # type: ignore[attr-defined]
        made = catalyst.struct([(str(f.name()), self._value(f.dataType(), columns)) for f in fields])
        if whole and self.never_null:
            return catalyst.cast(made, type_)
        return catalyst.expressions.If(is_null, catalyst.null_of(type_), catalyst.cast(made, type_))


def equal_columns(catalyst: Catalyst, ours: Sequence[Java], theirs: Sequence[Java]) -> tuple[list[Java], list[Java]]:
    """What the two sides of a join have as keys, where null equals nothing: but within a struct it equals null.

    Both sides are made together, because a field that may be null on one of them takes two columns on both.
    """
    pairs = [
        pair
        for one, other in zip(ours, theirs, strict=True)
        for pair in _equal_columns(catalyst, Key(catalyst, one), Key(catalyst, other))
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _equal_columns(catalyst: Catalyst, one: Key, other: Key) -> Iterator[tuple[Java, Java]]:
    pairs = list(zip(one.columns(), other.columns(), strict=True))
    if str(one.expression.dataType().typeName()) != "struct":
        yield from pairs
        return
    [(missing, other_missing), *fields] = pairs
    not_ = catalyst.expressions.Not
    yield catalyst.only_if(not_(missing), missing), catalyst.only_if(not_(other_missing), other_missing)
    for ours, theirs in fields:
        yield from catalyst.comparable(ours, theirs)
