"""Graphs of steps that Hypothesis draws: sources that append or change, every operator, Spark's work between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dagster_ckpt.operators import RunningAggregate, agg, over
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.shared.checks.pipeline_checks import is_key
from dagster_ckpt.operators.shared.ranked.order_by import order_columns
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Tumbling
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable
from dagster_ckpt.operators.windows.windowed_state import WindowOptions
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.properties import aggregates_in_python, steps_in_python
from tests.properties.changing_rows import KIND, histories
from tests.properties.steps_in_python import EPOCH
from tests.unit.operators.joins.regular.joined_tables import TYPES, joined
from tests.unit.operators.keyed_streams import Row

SOURCE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("b", pa.bool_())])
VALUES: dict[str, list[Any]] = {
    "k": ["a", "a", "b", "c", None],
    "n": [0, 1, 1, 2, -3, 7, None],
    "f": [0.5, 0.5, -1.25, 3.0, 0.0, -0.0, float("nan"), float("inf"), None],
    "b": [True, False, None],
}
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}).map(
    lambda row: {name: row[name] for name in SOURCE.names}
)
KINDS = ["insert", "insert", "insert", "update", "delete", "fleeting"]


def full_histories(seed: int) -> list[list[list[tuple[str, int, Row]]]]:
    """Those of two sources, of a few rows that both have over and over. Drawn by itself: Hypothesis prefers few."""
    random = Random(seed)
    rows = [{name: random.choice(values) for name, values in VALUES.items()} for _ in range(random.randint(2, 6))]
    return [
        [
            [(random.choice(KINDS), random.randrange(30), random.choice(rows)) for _ in range(random.randint(0, 9))]
            for _ in range(random.randint(2, 5))
        ]
        for _ in range(2)
    ]


HISTORIES = st.one_of(
    st.lists(histories(ROWS), min_size=2, max_size=2), *[st.integers(0, 2**32).map(full_histories) for _ in range(3)]
)
STEPS_MAX = 5
Work = Callable[[Row], Row | None]
"""What Spark does with a row between two steps: None drops it."""


@dataclass(frozen=True)
class Rows:
    """The rows of a source or a step (`origin`: its place among all of these), after the work behind it.

    `row_key`: the columns that identify a row of a table that changes, as `Upstream.row_key`.
    """

    origin: int
    schema: pa.Schema
    changes: bool
    row_key: tuple[str, ...] | None = None
    works: tuple[Work, ...] = ()
    text: str | None = None

    @property
    def spec(self) -> InputSpec:
        return InputSpec((), self.schema.append(KIND) if self.changes else self.schema)

    @property
    def where(self) -> str | None:
        return self.text if self.changes else None

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """The rows after the work; a kind that a row has stays."""
        found = []
        for row in rows:
            worked: Row | None = {name: value for name, value in row.items() if name != KIND.name}
            for work in self.works:
                worked = None if worked is None else work(worked)
            if worked is not None:
                found.append({**worked, **({KIND.name: row[KIND.name]} if KIND.name in row else {})})
        return found

    def then(self, work: Work, text: str, schema: pa.Schema, kept: Sequence[str]) -> "Rows":
        """With more work, which leaves these columns as they are."""
        key = self.row_key if self.row_key is not None and set(self.row_key) <= set(kept) else None
        whole = text if self.text is None else f"({self.text}) AND ({text})"
        return replace(self, schema=schema, row_key=key, works=(*self.works, work), text=whole)

    def names(self, fits: Callable[[pa.DataType], bool]) -> list[str]:
        return [field.name for field in self.schema if fits(field.type)]


@dataclass(frozen=True)
class Step:
    """An operator, and what it makes of all rows of its inputs so far. `inexact` are columns of rounded values.

    `of_epoch`: the model takes the rows of one epoch and the result before it, and gives the result after it.
    """

    operator: OperatorStep
    inputs: tuple[Rows, ...]
    model: Callable[..., list[Row]]
    inexact: frozenset[str] = frozenset()
    of_epoch: bool = False


@dataclass
class Graph:
    """`changing` says of each source whether its rows change; the steps follow one another in order."""

    changing: list[bool]
    steps: list[Step] = field(default_factory=list)
    names: int = 0

    def name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    @property
    def rows(self) -> list[Rows]:
        """Those of the sources, then those of the steps."""
        found = [Rows(number, SOURCE, changes) for number, changes in enumerate(self.changing)]
        for number, step in enumerate(self.steps, len(found)):
            pipeline = step.operator.pipeline
            key = None if pipeline.appends else row_key(pipeline)
            found.append(Rows(number, pipeline.output, not pipeline.appends, key))
        return found


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph(draw(st.lists(st.booleans(), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(1, STEPS_MAX))):
        kind = draw(st.sampled_from(list(STEPS)))
        graph.steps.append(STEPS[kind](draw, graph))
    return graph


@st.composite
def steps_alone(draw: st.DrawFn, kind: str) -> Graph:
    """One step of this kind."""
    graph = Graph(draw(st.lists(st.booleans(), min_size=1, max_size=2)))
    graph.steps.append(STEPS[kind](draw, graph))
    return graph


def an_input(draw: st.DrawFn, graph: Graph) -> Rows:
    """The rows of a source or step, the newest ones most often, after up to two pieces of work."""
    rows = draw(st.sampled_from([*graph.rows, *graph.rows[-1:] * 4]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        rows = draw(st.sampled_from([filtered, selected]))(draw, graph, rows)
    if rows.names(is_key):
        return rows
    name, columns = graph.name(), rows.schema.names  # floats alone are no key of any step
    return rows.then(
        lambda row: {**row, name: 1}, f"select *, 1 {name}", rows.schema.append(pa.field(name, pa.int64())), columns
    )


def filtered(draw: st.DrawFn, graph: Graph, rows: Rows) -> Rows:
    name = draw(st.sampled_from(rows.schema.names))
    kind = draw(st.sampled_from(["not null", "not null", "above", "null"]))
    type_ = rows.schema.field(name).type

    def holds(row: Row) -> Row | None:
        value = row[name]
        true = {"null": value is None, "not null": value is not None}.get(kind)
        if true is None:
            least = "a" if pa.types.is_string(type_) else EPOCH if pa.types.is_timestamp(type_) else 0
            true = value is not None and value > least
        return row if true else None

    return rows.then(holds, f"{name} is {kind}", rows.schema, rows.schema.names)


def selected(draw: st.DrawFn, graph: Graph, rows: Rows) -> Rows:
    """Some of the columns, and some that are computed."""
    kept = draw(st.lists(st.sampled_from(rows.schema.names), unique=True))
    if not any(is_key(rows.schema.field(name).type) for name in kept):
        kept = list(dict.fromkeys([*(rows.names(is_key) or rows.schema.names)[:1], *kept]))
    fields = [rows.schema.field(name) for name in kept]
    computed = dict[str, tuple[str, str]]()
    for origin in draw(st.lists(st.sampled_from(rows.schema.names), max_size=2)):
        kinds = {"copy": rows.schema.field(origin).type, "is null": pa.bool_(), "one": pa.int64()}
        if pa.types.is_int64(rows.schema.field(origin).type):
            kinds["odd"] = pa.int64()
        kind, name = draw(st.sampled_from(sorted(kinds))), graph.name()
        computed[name] = (kind, origin)
        fields.append(pa.field(name, kinds[kind]))

    def work(row: Row) -> Row:
        values = {name: _computed(kind, row[origin]) for name, (kind, origin) in computed.items()}
        return {**{name: row[name] for name in kept}, **values}

    return rows.then(work, f"select {kept} {computed}", pa.schema(fields), kept)


def _computed(kind: str, value: Any) -> Any:
    match kind:
        case "copy":
            return value
        case "is null":
            return value is None
        case "odd":
            return None if value is None else value % 2
    return 1


def keys_of(draw: st.DrawFn, rows: Rows, least: int = 0) -> tuple[str, ...]:
    keys = rows.names(is_key)
    return tuple(draw(st.lists(st.sampled_from(keys), min_size=least, max_size=2, unique=True))) if keys else ()


def built(
    keys: tuple[str, ...], spec: InputSpec, build: Callable[[tuple[str, ...], InputSpec], Operator]
) -> OperatorStep:
    return OperatorStep.of(build(keys, spec) if keys else one_group(spec, build))


def aggregate(draw: st.DrawFn, graph: Graph) -> Step:
    rows = an_input(draw, graph)
    keys = keys_of(draw, rows)
    functions = {graph.name(): _function(draw, rows) for _ in range(draw(st.integers(1, 4)))}
    operator = built(
        keys,
        rows.spec,
        lambda keys, spec: RunningAggregate.build(keys, functions, spec, updating=rows.changes, where=rows.where),
    )
    inexact = {name for name, one in functions.items() if one.function in aggregates_in_python.INEXACT}
    model = partial(steps_in_python.aggregate, keys=keys, functions=functions)
    return Step(operator, (rows,), model, frozenset(inexact))


def _function(draw: st.DrawFn, rows: Rows) -> Aggregation:
    name = draw(st.sampled_from(rows.schema.names))
    type_ = rows.schema.field(name).type
    kinds: list[Callable[..., Aggregation] | None] = [
        agg.count,
        agg.count_distinct,
        agg.min,
        agg.max,
        agg.first,
        agg.last,
        None,
    ]
    if pa.types.is_boolean(type_):
        kinds += [agg.count_if, agg.bool_and, agg.bool_or]
    else:
        unnumbered = pa.types.is_string(type_) or pa.types.is_timestamp(type_)
        kinds += [] if unnumbered else [agg.sum, agg.sum, agg.avg, agg.variance, agg.stddev_pop]
        kinds += [] if unnumbered else [agg.median, agg.sum_distinct, agg.avg_distinct]
        kinds += [agg.bit_and, agg.bit_or, agg.bit_xor] if pa.types.is_int64(type_) else []
    kind = draw(st.sampled_from(kinds))
    if kind is None:
        return agg.count()
    by = {"by": draw(st.sampled_from(rows.schema.names))} if kind in (agg.first, agg.last) else {}
    found: Aggregation = kind(name, **by)
    return found


def window(draw: st.DrawFn, graph: Graph) -> Step:
    """Windows with early results, whose rows no watermark makes late."""
    rows, at = an_input(draw, graph), graph.name()
    numbers = rows.names(pa.types.is_int64)
    if not numbers or {"window_start", "window_end"} & set(rows.schema.names):
        return aggregate(draw, graph)
    number = draw(st.sampled_from(numbers))
    rows = rows.then(
        lambda row: {**row, at: EPOCH + timedelta(microseconds=row[number] or 0)},
        f"select *, {number} {at}",
        rows.schema.append(pa.field(at, pa.timestamp("us"))),
        rows.schema.names,
    )
    keys = keys_of(draw, rows)
    functions = {graph.name(): _function(draw, rows) for _ in range(draw(st.integers(1, 3)))}
    shapes: list[FixedWindow] = [Tumbling(3), Tumbling(5, 1), Hopping(4, 2), Hopping(5, 3)]
    shape = draw(st.sampled_from(shapes))

    def build(keys: tuple[str, ...], spec: InputSpec) -> Operator:
        if not rows.changes and draw(st.booleans()):
            return WindowAggregate.build(keys, functions, spec, at, shape, early=True)
        options = WindowOptions(shape, functions, at, early=True, late="drop")
        return WindowOfTable.build(keys, options, spec, updating=rows.changes, where=rows.where)

    model = partial(steps_in_python.windows, keys=keys, functions=functions, window=shape, at=at)
    inexact = {name for name, one in functions.items() if one.function in aggregates_in_python.INEXACT}
    return Step(built(keys, rows.spec, build), (rows,), model, frozenset(inexact))


def top(draw: st.DrawFn, graph: Graph) -> Step:
    rows = an_input(draw, graph)
    keys = keys_of(draw, rows)
    others = [name for name in rows.schema.names if name not in keys]
    if not others:
        keys, others = (), rows.schema.names
    spelled = _order(draw, others)
    ties = draw(st.sampled_from(["rows", "rank", "dense_rank"]))
    best = Best(draw(st.sampled_from([1, 2, 3])), spelled, ties, draw(st.sampled_from([None, graph.name()])))
    return _best(rows, keys, best)


def _order(draw: st.DrawFn, columns: Sequence[str]) -> list[str]:
    names = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    ways = st.sampled_from(["asc", "desc", "asc nulls last", "desc nulls first"])
    return [f"{name} {draw(ways)}" for name in names]


def over_partition(draw: st.DrawFn, graph: Graph) -> Step:
    rows = an_input(draw, graph)
    keys = keys_of(draw, rows)
    others = [name for name in rows.schema.names if name not in keys]
    if not others:
        keys, others = (), rows.schema.names
    spelled = _order(draw, others)
    functions = {graph.name(): _over(draw, rows, keys) for _ in range(draw(st.integers(1, 2)))}

    def build(keys: tuple[str, ...], spec: InputSpec) -> Operator:
        options: Any = {"input_key": rows.row_key, "updating": rows.changes, "where": rows.where}
        return OverPartition.build(keys, spec, spelled, functions, **options)

    by = order_columns("over", spelled, rows.schema)
    model = partial(steps_in_python.over, keys=keys, functions=functions, by=by)
    return Step(built(keys, rows.spec, build), (rows,), model)


def _over(draw: st.DrawFn, rows: Rows, keys: Sequence[str]) -> Over:
    kinds: list[Over] = [over.row_number(), over.rank(), over.dense_rank(), over.count(), over.count(rows=(-1, 1))]
    frames: list[Any] = [{}, {"rows": (-2, 0)}, {"rows": (None, None)}, {"range": (0, None)}]
    for name in [each for each in rows.names(pa.types.is_int64) if each not in keys]:
        frame = draw(st.sampled_from(frames))
        kinds += [over.sum(name, **frame), over.min(name, **frame), over.max(name, **frame), over.lag(name)]
        kinds += [over.first_value(name, **frame), over.lead(name, 2)]
    return draw(st.sampled_from(kinds))


def _best(rows: Rows, keys: tuple[str, ...], best: Best) -> Step:
    def build(keys: tuple[str, ...], spec: InputSpec) -> Operator:
        return Top.build(keys, spec, best, input_key=rows.row_key, updating=rows.changes, where=rows.where)

    by = order_columns("top", best.by, rows.schema) if best.by else ()
    return Step(built(keys, rows.spec, build), (rows,), partial(steps_in_python.top, keys=keys, best=best, by=by))


def deduplicate(draw: st.DrawFn, graph: Graph) -> Step:
    rows = an_input(draw, graph)
    keys = keys_of(draw, rows, 1)
    others = [name for name in rows.schema.names if name not in keys]
    keep = draw(st.sampled_from(["first", "last"])) if others else "first"
    by = draw(st.lists(st.sampled_from(others), min_size=keep == "last", max_size=2, unique=True)) if others else []
    if rows.changes:
        if rows.row_key is not None and set(rows.row_key) <= set(keys):  # refused: one row of each key already
            return aggregate(draw, graph)
        return _best(rows, keys, Best.for_deduplicate(keep, by))
    operator = Deduplicate.build(keys, rows.spec, keep, by=tuple(by))

    def model(new: list[Row], before: list[Row]) -> list[Row]:
        if keep == "last" or by:
            return steps_in_python.one_of_each([*before, *new], keys, keep, by)
        known = {repr([row[key] for key in keys]) for row in before}
        fresh = [row for row in new if repr([row[key] for key in keys]) not in known]
        return before + steps_in_python.one_of_each(fresh, keys, keep, by)

    return Step(OperatorStep.of(operator), (rows,), model, of_epoch=True)


def distinct(draw: st.DrawFn, graph: Graph) -> Step:
    rows = an_input(draw, graph)
    operator = OperatorStep.of(Distinct.build(rows.spec, rows.where))
    return Step(operator, (rows,), lambda its: steps_in_python.set_operation("distinct", its, []))


def of_two(kinds: list[str], draw: st.DrawFn, graph: Graph) -> Step:
    """A set operation. Its inputs are one table, all rows and some, or a column of these; or two tables."""
    kind = draw(st.sampled_from(kinds))
    left, right = an_input(draw, graph), an_input(draw, graph)
    which = draw(st.sampled_from(["two", "rows", "column"]))
    if which == "rows":
        right = filtered(draw, graph, left)
    elif which == "column":
        name = {left.schema.field(column).type: column for column in left.names(is_key)[:1]}
        left, right = (_as_types(rows, name) for rows in (left, filtered(draw, graph, left)))
    if [(each.name, each.type) for each in left.schema] != [(each.name, each.type) for each in right.schema]:
        names = {type_: graph.name() for type_ in dict.fromkeys(left.schema.types) if type_ in right.schema.types}
        if not any(map(is_key, names)):
            right = filtered(draw, graph, left)
        else:
            left, right = (_as_types(rows, names) for rows in (left, right))
    inputs, wheres = [left.spec, right.spec], (left.where, right.where)
    operator = UnionAll.build(inputs, wheres) if kind == "union_all" else SetOperation.build(inputs, kind, wheres)
    return Step(OperatorStep.of(operator), (left, right), partial(steps_in_python.set_operation, kind))


def _as_types(rows: Rows, names: dict[pa.DataType, str]) -> Rows:
    """The first column of each type, under these names."""
    origins = {name: next(each.name for each in rows.schema if each.type == type_) for type_, name in names.items()}
    schema = pa.schema([(name, type_) for type_, name in names.items()])
    return rows.then(
        lambda row: {name: row[origin] for name, origin in origins.items()}, f"select {origins}", schema, ()
    )


def join(draw: st.DrawFn, graph: Graph) -> Step:
    left, right = an_input(draw, graph), an_input(draw, graph)
    pairs = [
        (mine, theirs)
        for mine in left.names(is_key)
        for theirs in right.names(is_key)
        if left.schema.field(mine).type == right.schema.field(theirs).type
    ]
    if not pairs:
        return aggregate(draw, graph)
    same = [pair for pair in pairs if pair[0] == pair[1]]
    of_one_name, by_two = draw(st.booleans()), draw(st.booleans())
    chosen = [draw(st.sampled_from(same if same and of_one_name else pairs))]
    more = [(mine, theirs) for mine, theirs in pairs if mine != chosen[0][0] and theirs != chosen[0][1]]
    chosen += [draw(st.sampled_from(more))] if more and by_two else []
    once = {mine for mine, theirs in chosen if mine == theirs}
    renamed = {
        name: graph.name() if name in left.schema.names and name not in once else name for name in right.schema.names
    }
    if any(old != new for old, new in renamed.items()):
        schema = pa.schema([each.with_name(renamed[each.name]) for each in right.schema])
        right = right.then(
            lambda row: {renamed[name]: value for name, value in row.items()},
            f"select {renamed}",
            schema,
            [old for old, new in renamed.items() if old == new],
        )
    keys = tuple(mine for mine, _ in chosen), tuple(renamed[theirs] for _, theirs in chosen)
    how = draw(st.sampled_from(TYPES))
    row_keys, wheres = (left.row_key, right.row_key), (left.where, right.where)
    operator = RegularJoin.build([left.spec, right.spec], keys, how, row_keys, wheres)
    return Step(
        OperatorStep.of(operator), (left, right), partial(joined, how=how, keys=keys, output=operator.pipeline.output)
    )


STEPS: dict[str, Callable[[st.DrawFn, Graph], Step]] = {
    "aggregate": aggregate,
    "window": window,
    "top": top,
    "over": over_partition,
    "deduplicate": deduplicate,
    "join": join,
    "distinct": distinct,
    "union_all": partial(of_two, ["union_all"]),
    "sets": partial(of_two, ["intersect", "intersect_all", "subtract", "except_all"]),
}
