"""Keys of a query as columns that a step can have as keys, and rows as columns of which none is there twice.

And what identifies the rows of a query's table: columns that determine the key of its last step.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst, NodeColumns
from dagster_ckpt.runtime.catalyst.values import Expression, Java, Join, Node, SparkType
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
        of_output: dict[int | None, str] = dict(zip(output.numbers, names, strict=True))
        leads = dict[str, str]()
        for name, each in leading.items():
            if (own := of_output.get(catalyst.column_number(each))) is not None:
                leads.setdefault(own, name)
        expressions, attributes, stand = dict(leading), dict[str, Java](), dict[int, str]()
        for own, number, each in sorted(zip(names, output.numbers, output, strict=True), key=itemgetter(0)):
            stand[number] = name = leads.get(own, own)
            expressions.setdefault(name, each)
            attributes.setdefault(name, each)
        made = {
            name: catalyst.make.new_column(name, each) for name, each in expressions.items() if name not in attributes
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
        """The columns and one more, which the node lacks."""
        attributes = self.attributes | {name: catalyst.make.new_column(name, value)}
        return RowColumns(self.expressions | {name: value}, attributes, self.stand)

    def show(self, catalyst: Catalyst, output: NodeColumns) -> list[Java]:
        """The columns of the node, of the attributes."""
        pairs = zip(output.numbers, output, strict=True)
        return [catalyst.make.show_as(self.attributes[self.stand[number]], each) for number, each in pairs]


def meets_all(catalyst: Catalyst, join: Join) -> bool:
    """Whether a join compares each row of either side with all rows of the other, since no keys must be equal.

    It does not where a side has at most one row, or constants only.
    """
    left_keys, _, _ = catalyst.equi_join_of(join)
    return not left_keys and not any(not each.streams or catalyst.has_at_most(1, each.java) for each in join.children)


def is_never_null(key: Expression, rows: Node) -> bool:
    """Whether a column of these rows has no nulls: as Spark knows, or because no row is in a window that is null.

    An outer join above the window makes nulls.
    """
    if not key.nullable:
        return True
    if key.window != "time":
        return False
    while len(rows.children) == 1:
        rows = rows.child
        if key.number not in {each for _, each in rows.output}:
            return True
    return False


@dataclass(frozen=True)
class Key:
    """An expression of a key. A step has `columns` for it; `value` makes the expression again of these.

    `never_null` is what is known of the rows below: Spark itself may know less.
    """

    catalyst: Catalyst
    expression: Expression
    never_null: bool = False

    def columns(self) -> list[Java]:
        """What the step has as keys: a struct's fields, and of a type that is no key its text, which is exact.

        There is one zero and one NaN, as in GROUP BY. Text with a collation is compared by it, so the step has its key.
        """
        return list(self._columns(self.expression.java, self.expression.type))

    @property
    def is_collated(self) -> bool:
        """Whether texts that differ may be one key, so that `value` cannot make them again."""
        return self.expression.type.collated

    def value(self, columns: Sequence[Java]) -> Java:
        """The key's value, from the step's columns, if it is not collated."""
        return self._value(self.expression.type, iter(columns), whole=True)

    def dependencies(self, names: Sequence[str]) -> list[Dependency]:
        """What follows from what among the step's columns, by their names."""
        if self.expression.type.name != "struct" or not self.never_null:
            return []
        whole, *fields = ([each] for each in names)
        found = [Dependency(frozenset(), frozenset(whole))]
        if self.expression.window == "time":
            pairs = [fields, fields[::-1]]  # its size is the same for all
            found += [Dependency(frozenset(one), frozenset(other)) for one, other in pairs]
        return found

    def _columns(self, value: Java, type_: SparkType) -> Iterator[Java]:
        catalyst = self.catalyst
        if type_.name == "struct":
            yield catalyst.make.is_null(value)
            for number, (_, field) in enumerate(type_.fields):
                yield from self._columns(catalyst.make.field(value, number), field)
            return
        if type_.collated:
            value = catalyst.convert.by_collation(value)
            [type_] = catalyst.types_of([value])
        if type_.name == "array" and has_exact_text(type_):
            yield text_of(catalyst, value)
        elif type_.name in ("array", "map", "variant"):
            raise InvalidPipelineError(
                "rows are not brought together by values of this type: group or join by its parts. "
                f"found={catalyst.sql_of(value)}, type={catalyst.type_text_of(value)}"
            )
        elif type_.name in FLOATS:
            yield catalyst.convert.cast_to_text(catalyst.convert.one_zero(value))
        elif type_.name.startswith("interval "):
            yield catalyst.convert.cast_to_text(value)
        else:
            yield value

    def _value(self, type_: SparkType, columns: Iterator[Java], *, whole: bool = False) -> Java:
        catalyst = self.catalyst
        if type_.name == "array":
            return value_of(catalyst, next(columns), type_)
        if type_.name != "struct":
            return catalyst.convert.cast(next(columns), type_)
        is_null = next(columns)
        fields = [(name, self._value(field, columns)) for name, field in type_.fields]
        made = catalyst.convert.cast(catalyst.make.struct(fields), type_)
        if whole and self.never_null:
            return made
        return catalyst.make.if_else(is_null, catalyst.make.null_of(type_), made)


def plain_key(catalyst: Catalyst, column: Expression) -> Key:
    """A column as a key by the bytes of its texts, whatever their collation is."""
    [plain] = catalyst.read_expressions(catalyst.convert.without_collation(column.java))
    return Key(catalyst, plain)


def equal_columns(
    catalyst: Catalyst, ours: Sequence[Expression], theirs: Sequence[Expression]
) -> tuple[list[Java], list[Java]]:
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
    if one.expression.type.name != "struct":
        yield from pairs
        return
    [(missing, other_missing), *fields] = pairs
    yield (
        catalyst.make.when(catalyst.make.is_not(missing), missing),
        catalyst.make.when(catalyst.make.is_not(other_missing), other_missing),
    )
    for ours, theirs in fields:
        yield from catalyst.make.comparable(ours, theirs)
