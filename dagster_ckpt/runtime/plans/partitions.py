"""Functions over a partition, and the first rows of one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.top import COUNT_MAX
from dagster_ckpt.operators.shared.ranked.order_by import quote
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst, NodeColumns
from dagster_ckpt.runtime.catalyst.refusals import naming_columns, naming_line
from dagster_ckpt.runtime.catalyst.values import (
    Aggregate,
    Expression,
    Expressions,
    Filter,
    GlobalLimit,
    Java,
    Join,
    LocalLimit,
    Node,
    Offset,
    Projection,
    Sort,
    SortTerm,
    SparkType,
    Union,
    Window,
)
from dagster_ckpt.runtime.catalyst.work_text import column_name
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.functions.exact_texts import NESTED
from dagster_ckpt.runtime.plans.functions.over_algebra import in_plainer_functions
from dagster_ckpt.runtime.plans.functions.over_functions import arguments_of, call_in, function_of
from dagster_ckpt.runtime.plans.keys import Key, RowColumns, meets_all
from dagster_ckpt.runtime.plans.parts import NamedColumns, NodeCompiler, Part, types_of

Ties = Literal["rows", "rank", "dense_rank"]
_RANK, _NO_ORDER = "rank()", "any()"
"""No column that a query reads has such a name."""
_TIES: Mapping[str, Ties] = {"RowNumber": "rows", "Rank": "rank", "DenseRank": "dense_rank"}


def top_of(compiler: NodeCompiler, node: Filter) -> Part | None:
    """The filter over a rank with a bound as the first rows of each key; None: it is another filter."""
    catalyst, window = compiler.catalyst, node.child
    if not isinstance(window, Window):
        return None
    calls = _calls_of(window)
    if len(calls) != 1:
        return None
    [call] = calls
    ties = _TIES.get(_function_of(call).kind)
    if ties is None:
        return None
    bound = _greatest_rank(node.condition, call.number)
    if bound is None or not 1 <= bound <= COUNT_MAX:
        return None  # `over` has all ranks
    part, condition = _first_rows(compiler, window, call, bound, ties), node.condition.java
    return part.then(lambda plan, _: catalyst.build.filter(condition, plan), catalyst.output_of(node))


def _calls_of(window: Window) -> list[Expression]:
    """The functions of a window. In a LATERAL subquery Spark has columns of the rows outside among them."""
    return [each for each in window.calls if each.kind == "Alias"]


def _function_of(call: Expression) -> Expression:
    """The function that is called over a window."""
    return call.value.children[0]


def limit_as_top(catalyst: Catalyst, node: GlobalLimit) -> Java:
    """ORDER BY ... LIMIT n as a filter over row numbers; of constants, as in EXISTS, so too: it matters how many."""
    below, above, skipped, count = node.child, list[Node](), 0, _count(node)
    if count == 0 or (isinstance(below, LocalLimit) and catalyst.has_at_most(count, below.child.java)):
        return _all_or_none(catalyst, below, count)
    while isinstance(below, LocalLimit | Offset | Projection):
        if isinstance(below, Projection):
            above.append(below)
        elif isinstance(below, Offset):
            skipped += _count(below)
        below = below.child
    if isinstance(below, Sort):
        kept = _numbered_rows(catalyst, [each.java for each in below.order], below.child.java, skipped, skipped + count)
    else:
        rows = above.pop() if above else below
        if _constants(catalyst, rows) is None:
            raise _any_rows()
        plain = _without_local_limits(catalyst, rows)
        if (skipped, count) == (0, 1):
            kept = catalyst.build.distinct_rows(plain)
        else:
            order = list(map(catalyst.calls.ascending, catalyst.columns(plain)))
            kept = _numbered_rows(catalyst, order, plain, skipped, skipped + count)
    for project in reversed(above):
        kept = catalyst.build.on(project.java, kept)
    return kept


def _count(node: GlobalLimit | LocalLimit | Offset) -> int:
    assert node.count.constant is not None, "Spark has folded it"
    return node.count.constant


def _all_or_none(catalyst: Catalyst, node: Node, count: int) -> Java:
    while isinstance(node, LocalLimit | Offset):
        node = node.child
    return node.java if count else catalyst.build.filter(catalyst.make.constant(False), node.java)


def _any_rows() -> InvalidPipelineError:
    return InvalidPipelineError("LIMIT without ORDER BY may give any rows: say which by ORDER BY. found=LIMIT")


def without_limit(catalyst: Catalyst, node: Node, keys: Expressions) -> Node:
    """Rows of which it matters only whether there are any with these keys, without a LIMIT for each such key."""
    match node:
        case GlobalLimit() | LocalLimit() if _count(node) > 0 and not keys:
            return without_limit(catalyst, node.child, keys)
        case Projection():
            below = without_limit(catalyst, node.child, keys)
            return node if below is node.child else catalyst.read(catalyst.build.on(node.java, below.java))
        case Filter(child=Window() as window) if not window.order and len(calls := _calls_of(window)) == 1:
            there = _columns_in(window.keys)
            bound = _greatest_rank(node.condition, calls[0].number)
            some = node.condition.kind == "LessThanOrEqual" and bound is not None and bound > 0
            return window.child if some and _columns_in(keys) <= there else node
    return node


def _columns_in(expressions: Expressions) -> set[int | None]:
    """Spark's numbers of the columns that expressions are made of."""
    return {part.number for each in expressions for part in each.parts() if part.kind == "AttributeReference"}


def _numbered_rows(catalyst: Catalyst, order: Sequence[Java], rows: Java, after: int, upto: int) -> Java:
    """The rows after the first `after` in an order, up to the number `upto`."""
    number, window = catalyst.build.with_number(order, rows)
    condition = catalyst.make.at_most(number, catalyst.make.constant(upto))
    if after:
        condition = catalyst.make.all_of([condition, catalyst.make.greater(number, catalyst.make.constant(after))])
    return catalyst.build.project(catalyst.columns(rows), catalyst.build.filter(condition, window))


def _without_local_limits(catalyst: Catalyst, node: Node) -> Java:
    """The plan without limits that Spark has brought below one, into the sides of a union too."""
    match node:
        case LocalLimit():
            return _without_local_limits(catalyst, node.child)
        case Union():
            return catalyst.build.on(node.java, *(_without_local_limits(catalyst, each) for each in node.children))
    return node.java


def _constants(catalyst: Catalyst, rows: Node) -> list[str] | None:
    """The constants that every row has, as SQL; None: rows may have others."""
    match rows:
        case LocalLimit():
            return _constants(catalyst, rows.child)
        case Union():
            first, *others = (_constants(catalyst, each) for each in rows.children)
            return first if all(each == first for each in others) else None
        case Aggregate() | Projection() if all(each.kind == "Alias" and each.value.foldable for each in rows.columns):
            return [catalyst.sql_of(each.value.java) for each in rows.columns]
    return None


def over_partition(compiler: NodeCompiler, node: Window) -> Part:
    """Functions over a partition as a step."""
    catalyst = compiler.catalyst
    calls = _calls_of(node)
    if not calls:  # in a LATERAL subquery, if the query reads none of them
        return compiler.part(node.child).then(lambda plan, _: plan, catalyst.output_of(node))
    plainer = in_plainer_functions(catalyst, node, calls)
    if plainer is not None:
        return compiler.part(catalyst.read(plainer))
    arguments = []
    for named in calls:
        with naming_line(catalyst, named.value):
            arguments.append(arguments_of(catalyst, call_in(named).function))
    rows = _Rows.of(compiler, node, [each for of_one in arguments for each in of_one])
    if not rows.by:
        rows = rows.in_any_order(catalyst)
    names, functions, made_by = iter(rows.more), dict[str, Over](), list[str]()
    for named, of_one in zip(calls, arguments, strict=True):
        with naming_line(catalyst, named.value):
            function = function_of(catalyst, call_in(named), [next(names) for _ in of_one])
        made_by.append(_name_of(function))
        functions[made_by[-1]] = function
    functions = {name: functions[name] for name in sorted(functions)}
    own = [each.java for each in calls]
    with naming_columns(catalyst, [*made_by, *rows.columns.expressions], [*own, *rows.columns.expressions.values()]):
        made = rows.stream().over(rows.by, **functions)
        types = types_of(made, len(functions))
    results = {name: catalyst.make.column_of_type("a", type_) for name, type_ in zip(functions, types, strict=True)}
    cast = [catalyst.convert.cast(results[name], each.type) for name, each in zip(made_by, calls, strict=True)]
    values = catalyst.make.standing_for(cast, map(catalyst.make.column_of, own))
    part = Part(catalyst, (), stream=made, attributes=(*rows.columns.attributes.values(), *results.values()))
    return part.project([*rows.columns.show(catalyst, rows.output), *values], catalyst.output_of(node))


def _name_of(function: Over) -> str:
    """The function as SQL has it, over the name of what it reads: `lag(delay, n=1)`."""
    options = [
        f"{name}={getattr(function, name)!r}"
        for name in ("n", "default", "rows", "range")
        if getattr(function, name) is not None
    ]
    return column_name(f"{function.function}({', '.join([*filter(None, [function.column]), *options])})")


def order_of(catalyst: Catalyst, term: SortTerm) -> Iterator[tuple[Java, str]]:
    """The columns of a term of ORDER BY, each with its direction: of a struct its fields, where null is the least."""
    yield from _order_columns(catalyst, term.by.java, term.by.type, ascends=term.ascends, nulls_first=term.nulls_first)


def _order_columns(
    catalyst: Catalyst, column: Java, type_: SparkType, *, ascends: bool, nulls_first: bool
) -> Iterator[tuple[Java, str]]:
    direction = "asc" if ascends else "desc"
    if type_.name in ("array", "map", "variant"):
        raise InvalidPipelineError(
            "rows have no order by values of this type: order by its parts. "
            f"found={catalyst.sql_of(column)}, type={catalyst.type_text_of(column)}"
        )
    if type_.name != "struct":
        plain = catalyst.convert.by_collation(column) if type_.collated else column
        yield plain, f"{direction} nulls {'first' if nulls_first else 'last'}"
        return
    yield catalyst.make.is_null(column), "desc" if nulls_first else "asc"
    for number, (_, field) in enumerate(type_.fields):
        yield from _order_columns(
            catalyst, catalyst.make.field(column, number), field, ascends=ascends, nulls_first=ascends
        )


@dataclass(frozen=True)
class _Rows:
    """The rows below a `Window` node as a step reads them: its keys, then their other columns.

    `by` is their order, and `more` are the names of columns that functions read, of which none is a key.
    """

    read: NamedColumns
    keys: tuple[str, ...]
    by: tuple[str, ...]
    more: tuple[str, ...]
    columns: RowColumns
    output: NodeColumns

    @classmethod
    def of(cls, compiler: NodeCompiler, window: Window, more: Sequence[Java] = ()) -> "_Rows":
        catalyst, child = compiler.catalyst, window.child
        keys = [column for each in window.keys for column in Key(catalyst, each).columns()]
        terms = [term for each in window.order for term in order_of(catalyst, each)]
        output = catalyst.output_of(child)
        ordered = [column for column, _ in terms]
        read = compiler.part(child).with_names([*keys, *ordered, *more, *output])
        names = iter(read.names)
        of_keys = dict(zip(islice(names, len(keys)), keys, strict=True))
        # A step has keys for nothing else.
        beside = [f"{name} again" if name in of_keys else name for name in islice(names, len(ordered) + len(more))]
        of_others = dict(zip(beside, [*ordered, *more], strict=True))
        by = dict[str, str]()
        for name, (_, text) in zip(beside, terms, strict=False):
            by.setdefault(name, text)  # of equal terms the first decides
        leading = {name: own[name] for own in (of_keys, of_others) for name in sorted(own)}
        return cls(
            read,
            tuple(sorted(of_keys)),
            tuple(f"{quote(name)} {text}" for name, text in by.items()),
            tuple(beside[len(ordered) :]),
            RowColumns.of(catalyst, leading, output, list(names)),
            output,
        )

    def in_any_order(self, catalyst: Catalyst) -> "_Rows":
        """The rows by whatever order: without one, all rows of a partition are one frame."""
        types = zip(self.columns.expressions, catalyst.types_of(list(self.columns.expressions.values())), strict=True)
        found = (name for name, type_ in types if name not in self.keys and _has_own_order(type_))
        if (other := next(found, None)) is not None:
            return replace(self, by=(f"{quote(other)} asc",))
        columns = self.columns.with_column(catalyst, _NO_ORDER, catalyst.make.parse("1"))
        return replace(self, by=(f"{quote(_NO_ORDER)} asc",), columns=columns)

    def stream(self) -> Stream:
        """The rows, by their keys."""
        rows = self.read.stream_of(self.columns.expressions)
        return rows.key_by(*self.keys) if self.keys else rows


def _has_own_order(type_: SparkType) -> bool:
    """Whether a step orders rows by a column of this type as it is."""
    return type_.name not in NESTED and not type_.collated


def _first_rows(compiler: NodeCompiler, window: Window, call: Expression, bound: int, ties: Ties) -> Part:
    catalyst, ordered = compiler.catalyst, _in_order_of_sort(compiler.catalyst, window)
    if bound == 1 and not window.order:  # ORDER BY ... LIMIT 1 in a subquery, for each row outside
        _refuse_as_of(compiler, ordered.child)
    rows = _Rows.of(compiler, ordered)
    if not rows.by:  # LIMIT in a subquery, for each row outside
        raise _any_rows()
    made = rows.stream().top(bound, rows.by, ties=ties, rank=_RANK)
    rank = catalyst.make.column_of(call.java)
    shown, own = rows.columns.show(catalyst, rows.output), [*rows.output, rank]
    part = Part(catalyst, (), stream=made, attributes=(*rows.columns.attributes.values(), rank))
    return part.project([*shown, rank], own)


def _refuse_as_of(compiler: NodeCompiler, rows: Node) -> None:
    """Raise `InvalidPipelineError` where each row outside would meet every row of a stream that grows."""
    while isinstance(rows, Projection | Filter):
        rows = rows.child
    if not isinstance(rows, Join) or not meets_all(compiler.catalyst, rows):
        return
    if any(compiler.part_that_streams(each).changes for each in rows.children):
        return
    condition = "" if rows.condition is None else compiler.catalyst.sql_of(rows.condition.java)
    with naming_line(compiler.catalyst, rows if rows.condition is None else rows.condition):
        raise InvalidPipelineError(
            "the newest row up to each row's time would compare it with all rows of a stream that grows: join by equal "
            "keys and within a time, such as p.sku = o.sku AND p.at BETWEEN o.at - INTERVAL 7 DAYS AND o.at, and keep "
            "row_number() OVER (PARTITION BY o.id ORDER BY p.at DESC) = 1. "
            f"found=ORDER BY ... LIMIT 1 where {condition}"
        )


def _in_order_of_sort(catalyst: Catalyst, window: Window) -> Window:
    """The window in the order of a sort below it.

    Where the result of ORDER BY ... LIMIT in a subquery for each row outside lacks the sort's columns, Spark leaves the
    sort below.
    """
    projects, below = list[Projection](), window.child
    while isinstance(below, Projection):
        projects.append(below)
        below = below.child
    if window.order or not isinstance(below, Sort):
        return window
    columns = _columns_in(below.order)
    rows = below.child.java
    for project in reversed(projects):
        there = {each.number for each in project.columns}
        pairs = zip(catalyst.columns(rows), catalyst.column_names(rows), strict=True)
        more = [each for each, (_, number) in pairs if number in columns - there]
        rows = catalyst.build.project([*(each.java for each in project.columns), *more], rows)
    calls, keys, order = ([each.java for each in some] for some in (_calls_of(window), window.keys, below.order))
    made = catalyst.read(catalyst.build.window(calls, keys, order, rows))
    assert isinstance(made, Window), "it was built as one"
    return made


def _greatest_rank(condition: Expression, rank: int | None) -> int | None:
    """The greatest rank that the condition lets through, by Spark's number of it; None: it sets none."""
    match condition:
        case Expression(kind="And", children=[one, other]):
            given = [each for each in (_greatest_rank(one, rank), _greatest_rank(other, rank)) if each is not None]
            return min(given) if given else None
        case Expression(
            kind="LessThan" | "LessThanOrEqual" | "EqualTo" as kind,
            children=[
                Expression(kind="AttributeReference", number=number),
                Expression(kind="Literal", constant=int(most)),
            ],
        ) if number == rank:
            return most - (kind == "LessThan")
    return None
