"""Aggregates of groups as steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from dagster_ckpt.operators import agg, over
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.ranked.order_by import quote
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.refusals import naming_columns, naming_line
from dagster_ckpt.runtime.catalyst.values import Aggregate, AggregateCall, Expression, Java, Node, Projection
from dagster_ckpt.runtime.catalyst.work_text import column_name, in_canonical_order
from dagster_ckpt.runtime.declared.stream import Stream, global_aggregate, rows_of
from dagster_ckpt.runtime.plans.aggregates import Call, call_of
from dagster_ckpt.runtime.plans.keys import Dependency, Key, is_never_null, plain_key
from dagster_ckpt.runtime.plans.parts import NodeCompiler, Part, types_of

_START, _END = "session_start()", "session_end()"
"""No column that a query reads has such a name."""


@dataclass(frozen=True)
class SessionKey:
    """The window of a session as a key. Below the aggregate it is that of each row: its time, and that plus the gap."""

    catalyst: Catalyst
    expression: Expression

    @staticmethod
    def is_one(key: Expression) -> bool:
        """Whether Spark would merge the windows that this key has."""
        return key.window == "session"

    def columns(self) -> list[Java]:
        """The start and the end of a row's window, then those of its session."""
        return [self.catalyst.make.field(self.expression.java, number) for number in range(2)]

    @property
    def is_collated(self) -> bool:
        """A window has no text."""
        return False

    def dependencies(self, names: Sequence[str]) -> list[Dependency]:
        """None: where a session starts is what it is known by, and sessions of other keys may end together."""
        return []

    def value(self, columns: Sequence[Java]) -> Java:
        names = (name for name, _ in self.expression.type.fields)
        made = self.catalyst.make.struct(list(zip(names, columns, strict=True)))
        return self.catalyst.convert.cast(made, self.expression.type)


def aggregated_sessions(rows: Stream, keys: Sequence[str], aggregations: Mapping[str, Aggregation]) -> Stream:
    """Aggregates of each session: its keys, of which the last two are the window, then the aggregates.

    Rows may come late or be taken back, which joins and splits sessions. A session is known by its start, so that no
    other one changes.
    """
    *others, start, end = keys
    rows = rows.key_by(*others) if others else rows
    found = rows.over(f"{quote(start)} asc", **{_START: over.session_start(end)})
    return found.key_by(*others, _START).aggregate(**{_END: agg.max(end)}, **aggregations)


def aggregate_part(compiler: NodeCompiler, node: Aggregate) -> Part:
    """Aggregates of groups, and what is computed of them."""
    catalyst = compiler.catalyst
    of_keys, of_calls, results = catalyst.aggregate_of(node.java)
    grouping, calls = (in_canonical_order(catalyst, each, node.child.output) for each in (of_keys, of_calls))
    keys = [each.java for each in grouping]
    groups = catalyst.build.groups(keys, [each.java for each in calls], node.child.java)
    part = compiler.once(groups, lambda: _groups(compiler, groups, grouping, calls, node.child))
    wanted = [*keys, *map(catalyst.make.result_of, calls)]
    part = part.project(catalyst.make.standing_for(part.output, wanted), wanted)
    return part.project([each.java for each in results], catalyst.output_of(node))


def _groups(
    compiler: NodeCompiler, groups: Java, grouping: Sequence[Expression], calls: Sequence[Expression], below: Node
) -> Part:
    """A row for each group: its key, then the results of the calls; the distinct keys if there are none."""
    catalyst, output = compiler.catalyst, compiler.catalyst.columns(groups)
    keys, called = _Keys(catalyst, grouping, below), [_call_of(catalyst, call) for call in calls]
    arguments = [each for call in called for each in call.arguments]
    read = compiler.part(below).with_names([*keys.columns, *arguments, *keys.columns_to_show()])
    names = iter(read.names)
    key_names = list(islice(names, len(keys.columns)))
    of_calls = [call.aggregations([next(names) for _ in call.arguments]) for call in called]
    there, *shown = list(names) or [""]
    row = [agg.first(list(dict.fromkeys(shown)), by=there)] if shown else []
    by_key = keys.in_order(key_names)
    every = {_name_of(each): each for each in (*chain.from_iterable(of_calls), *row)}
    aggregations = {name: every[name] for name in sorted(every)}
    if not by_key and not aggregations:
        aggregations = {"count()": agg.count()}  # there is one group, even of no rows
    wanted = [(name, call.java) for call, its in zip(calls, of_calls, strict=True) for name in map(_name_of, its)]
    with naming_columns(
        catalyst,
        [*read.columns, *(name for name, _ in wanted)],
        [*read.columns.values(), *(call for _, call in wanted)],
    ):
        made = _step(read.stream(), by_key, aggregations, of_sessions=keys.of_sessions)
        types = types_of(made, len(aggregations))
    stand = {name: catalyst.make.new_column(name, read.columns[name]) for name in by_key}
    results = {name: catalyst.make.column_of_type("a", type_) for name, type_ in zip(aggregations, types, strict=True)}
    of_row = {
        name: catalyst.make.field(results[_name_of(each)], at)
        for each in row
        for at, name in enumerate(dict.fromkeys(shown))
    }
    values = [
        *keys.values([stand[name] for name in key_names], [of_row[name] for name in shown]),
        *(call.value([results[_name_of(each)] for each in its]) for call, its in zip(called, of_calls, strict=True)),
    ]
    cast = [catalyst.convert.cast_like(*pair) for pair in zip(values, output, strict=True)]
    emitted = dict(zip(by_key, (each for each in rows_of(made).frame.columns if each != CHANGE_TYPE), strict=False))
    depends = tuple(keys.dependencies([emitted[name] for name in key_names]))
    part = Part(catalyst, (), stream=made, attributes=(*stand.values(), *results.values()), dependencies=depends)
    return part.project(catalyst.make.standing_for(cast, output), output)


def _call_of(catalyst: Catalyst, call: Expression) -> Call:
    assert isinstance(call, AggregateCall), "an aggregate has calls alone"
    with naming_line(catalyst, call.function):
        return call_of(catalyst, call)


def _name_of(aggregation: Aggregation) -> str:
    """The aggregate as SQL has it, over the names of what it reads: `sum(delay)`, `percentile(delay, q=0.5)`."""
    named = [", ".join(aggregation.columns or ()) or aggregation.column, aggregation.other]
    options = [
        f"{name}={value}"
        for name, value in aggregation.spelling().items()
        if name not in ("function", "column", "columns", "other") and value is not None
    ]
    return column_name(f"{aggregation.function}({', '.join([*filter(None, named), *options])})")


def _step(rows: Stream, keys: Sequence[str], aggregations: Mapping[str, Aggregation], *, of_sessions: bool) -> Stream:
    if of_sessions:
        return aggregated_sessions(rows, keys, aggregations)
    if not aggregations:
        return rows.distinct()
    if keys:
        return rows.key_by(*keys).aggregate(**aggregations)
    return global_aggregate(rows, aggregations)


class _Keys:
    """The keys of groups as columns of a step, those of a session last."""

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

    def dependencies(self, names: Sequence[str]) -> Iterator[Dependency]:
        """What follows from what among these columns, by their names: within a key, and of a key from other keys."""
        rest = iter(names)
        of_keys = [[next(rest) for _ in own] for own in self._own]
        for key, own in zip(self._keys, of_keys, strict=True):
            yield from key.dependencies(own)
        plain = {
            key.expression.number: own[0]
            for key, own in zip(self._keys, of_keys, strict=True)
            if len(own) == 1 and not key.is_collated  # of texts that are one key other values may be made
        }
        below = self._below.columns if isinstance(self._below, Projection) else ()
        defined = {each.number: each.value for each in below if each.kind == "Alias"}
        for key, own in zip(self._keys, of_keys, strict=True):
            made_of = defined.get(key.expression.number)
            if made_of is None or not made_of.deterministic:
                continue
            columns = (part.number for part in made_of.parts() if part.kind == "AttributeReference")
            read = {number for number in columns if number is not None}
            if read <= plain.keys():
                yield Dependency(frozenset(plain[number] for number in read), frozenset(own))

    def in_order(self, names: Sequence[str]) -> list[str]:
        """The names of the columns, each once, in the order in which the step has them."""
        ends = len(self._own[-1]) if self.of_sessions else 0
        split = len(names) - ends
        return [*sorted(set(names[:split])), *names[split:]]

    def columns_to_show(self) -> list[Java]:
        """What is read for the values of keys with a collation: a column that is there in each row, then their columns.

        A group shows one of several texts that are one key, that of one of its rows. Empty if no key has a collation.
        """
        plain = [each for key in self._keys if key.is_collated for each in self._plain(key).columns()]
        return [self._catalyst.make.constant(True), *plain] if plain else []

    def values(self, columns: Sequence[Java], shown: Sequence[Java]) -> list[Java]:
        """The values of the keys, in the order of the query, of the step's columns and of what is shown of a row."""
        rest, of_row = iter(columns), iter(shown)
        made = []
        for key, own in zip(self._keys, self._own, strict=True):
            its = [next(rest) for _ in own]
            if not key.is_collated:
                made.append(key.value(its))
                continue
            plain = self._plain(key)
            made.append(plain.value([next(of_row) for _ in plain.columns()]))
        return [made[self._ordered.index(each)] for each in self._grouping]

    def _plain(self, key: Key | SessionKey) -> Key:
        return plain_key(self._catalyst, key.expression)
