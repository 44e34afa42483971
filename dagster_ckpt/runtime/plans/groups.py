"""Aggregates of groups as steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.query_plan import column_number, columns_of, each_of
from dagster_ckpt.runtime.declared.stream import Stream, global_aggregate, rows_of
from dagster_ckpt.runtime.plans.aggregates import Call, call_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node
from dagster_ckpt.runtime.plans.keys import Key, is_never_null
from dagster_ckpt.runtime.plans.parts import Part, types_of
from dagster_ckpt.runtime.plans.refusals import located, naming_columns
from dagster_ckpt.runtime.plans.sessions import SessionKey, of_sessions
from dagster_ckpt.runtime.plans.table_keys import Dependency
from dagster_ckpt.runtime.plans.work_text import in_canonical_order

if TYPE_CHECKING:
    from dagster_ckpt.runtime.plans.compiler import Compiler


def aggregated(compiler: "Compiler", node: Node) -> Part:
    """Aggregates of groups, and what is computed of them."""
    catalyst = compiler.catalyst
    grouping, calls, results, below = catalyst.aggregate_of(node)
    grouping = in_canonical_order(catalyst, grouping, below)
    calls = in_canonical_order(catalyst, calls, below)
    groups = catalyst.groups(grouping, calls, below)
    part = compiler.once(groups, lambda _: _groups(compiler, groups, grouping, calls, below))
    wanted = [*grouping, *(call.resultAttribute() for call in calls)]
    named = catalyst.standing_for(part.output, wanted)
    part = part.then(lambda plan, beside: catalyst.project([*named, *beside], plan), wanted)
    output = tuple(each_of(node.output()))
    return part.then(lambda plan, beside: catalyst.project([*results, *beside], plan), output)


def _groups(
    compiler: "Compiler", node: Node, grouping: Sequence[Expression], calls: Sequence[Expression], below: Node
) -> Part:
    """A row for each group: its key, then the results of the calls; the distinct keys if there are none."""
    catalyst, output = compiler.catalyst, tuple(each_of(node.output()))
    keys = _Keys(catalyst, grouping, below)
    read = _Read(dict(zip(keys.names, keys.columns, strict=True)))
    called = [_Called.of(catalyst, call, read) for call in calls]
    every = [(each, one.call) for one in called for each in one.aggregations]
    shown = keys.shown(read)
    if shown:
        every.append((agg.first(list(dict.fromkeys(shown[1:])), by=shown[0]), grouping[0]))
    aggregations = {f"a{number}": each for number, (each, _) in enumerate(every)}
    if not keys.names and not aggregations:
        aggregations = {"a0": agg.count()}  # there is one group, even of no rows
    rows = compiler.part(below).columns(list(read.columns.values()), list(read.columns))
    with naming_columns([*read.columns, *aggregations], [*read.columns.values(), *(call for _, call in every)]):
        made = _step(rows, keys, aggregations)
        types = types_of(made, len(aggregations))
    results = [catalyst.attribute("a", type_) for type_ in types]
    rest = iter(results)
    row = {name: catalyst.field(results[-1], at) for at, name in enumerate(dict.fromkeys(shown[1:]))}
    values = [
        *keys.values([row[name] for name in shown[1:]]),
        *(one.made.value([next(rest) for _ in one.aggregations]) for one in called),
    ]
    cast = [catalyst.cast(one, each.dataType()) for one, each in zip(values, output, strict=True)]
    named = catalyst.standing_for(cast, output)
    names = [name for name in rows_of(made).frame.columns if name != CHANGE_TYPE]
    depends = tuple(keys.dependencies(names[: len(keys.names)]))
    part = Part(catalyst, (), stream=made, attributes=(*keys.attributes, *results), dependencies=depends)
    return part.then(lambda plan, beside: catalyst.project([*named, *beside], plan), output)


def _step(rows: Stream, keys: "_Keys", aggregations: dict[str, Aggregation]) -> Stream:
    if keys.of_sessions:
        return of_sessions(rows, keys.names, aggregations)
    if not aggregations:
        return rows.distinct()
    if keys.names:
        return rows.key_by(*keys.names).aggregate(**aggregations)
    return global_aggregate(rows, aggregations)


class _Keys:
    """The keys of groups as columns `k0`... of a step, those of a session last."""

    def __init__(self, catalyst: Catalyst, grouping: Sequence[Expression], below: Node) -> None:
        self._catalyst, self._below = catalyst, below
        self._grouping, self._ordered = grouping, sorted(grouping, key=SessionKey.is_one)
        self.of_sessions = bool(self._ordered) and SessionKey.is_one(self._ordered[-1])
        self._keys = [
            SessionKey(catalyst, each) if SessionKey.is_one(each) else Key(catalyst, each, is_never_null(each, below))
            for each in self._ordered
        ]
        self._own = [key.columns() for key in self._keys]
        self.columns = [each for own in self._own for each in own]
        self.names = [f"k{number}" for number in range(len(self.columns))]
        pairs = zip(self.columns, self.names, strict=True)
        self.attributes = [catalyst.alias(each, name).toAttribute() for each, name in pairs]

    def dependencies(self, names: Sequence[str]) -> Iterator[Dependency]:
        """What follows from what among these columns, by their names: within a key, and of a key from other keys."""
        rest = iter(names)
        of_keys = [[next(rest) for _ in own] for own in self._own]
        for key, own in zip(self._keys, of_keys, strict=True):
            yield from key.dependencies(own)
        plain = {
            column_number(key.expression): own[0]
            for key, own in zip(self._keys, of_keys, strict=True)
            if len(own) == 1 and not key.is_collated  # of texts that are one key other values may be made
        }
        defined = self._catalyst.definitions(self._below)
        for key, own in zip(self._keys, of_keys, strict=True):
            made_of = defined.get(column_number(key.expression))
            if made_of is None or not made_of.deterministic():
                continue
            read = {number for _, number in columns_of(made_of.references().toSeq())}
            if read <= plain.keys():
                yield Dependency(frozenset(plain[number] for number in read), frozenset(own))

    def shown(self, read: "_Read") -> list[str]:
        """What is read for the values of keys with a collation: a column that is there in each row, then their columns.

        Of several texts that are one key a group shows those of one of its rows. Empty if no key has a collation.
        """
        plain = [each for key in self._keys if key.is_collated for each in self._plain(key).columns()]
        return [read.name_of(each) for each in (self._catalyst.constant(True), *plain)] if plain else []

    def values(self, shown: Sequence[Expression]) -> list[Expression]:
        """The values of the keys, in the order of the query, of the step's columns and of what is shown of a row."""
        rest, of_row = iter(self.attributes), iter(shown)
        made = []
        for key, own in zip(self._keys, self._own, strict=True):
            columns = [next(rest) for _ in own]
            if not key.is_collated:
                made.append(key.value(columns))
                continue
            plain = self._plain(key)
            made.append(plain.value([next(of_row) for _ in plain.columns()]))
        return [made[self._ordered.index(each)] for each in self._grouping]

    def _plain(self, key: Key | SessionKey) -> Key:
        return Key(self._catalyst, self._catalyst.without_collation(key.expression))


@dataclass
class _Read:
    """What an aggregate reads, by name: keys, then `v0`... Arguments that are equal are one, so they have one state."""

    columns: dict[str, Expression]
    values: int = 0

    def name_of(self, argument: Expression) -> str:
        """The name of an argument, which may be a key as it is."""
        same = (name for name, each in self.columns.items() if each.semanticEquals(argument))
        found = next(same, None)
        if found is None:
            found = f"v{self.values}"
            self.values += 1
            self.columns[found] = argument
        return found


@dataclass(frozen=True)
class _Called:
    """A call of the query with the engine's aggregates that it is made of."""

    call: Expression
    made: Call
    aggregations: Sequence[Aggregation]

    @classmethod
    def of(cls, catalyst: Catalyst, call: Expression, read: _Read) -> "_Called":
        with located(catalyst, call.aggregateFunction()):
            made = call_of(catalyst, call)
            return cls(call, made, made.aggregations([read.name_of(each) for each in made.arguments]))
