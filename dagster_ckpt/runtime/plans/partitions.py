"""Functions over a partition, and the first rows of one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.top.top import COUNT_MAX
from dagster_ckpt.operators.shared.ranked.order_by import quoted
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst, Expression, Node
from dagster_ckpt.runtime.catalyst.query_plan import column_number, each_of, nodes
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.exact_texts import NESTED
from dagster_ckpt.runtime.plans.keys import Key, RowColumns, is_column, meets_all
from dagster_ckpt.runtime.plans.over_algebra import in_plainer_functions
from dagster_ckpt.runtime.plans.over_functions import arguments_of, function_of
from dagster_ckpt.runtime.plans.parts import NamedColumns, Part, types_of
from dagster_ckpt.runtime.plans.refusals import located, naming_columns
from dagster_ckpt.runtime.plans.work_text import column_name

if TYPE_CHECKING:
    from dagster_ckpt.runtime.plans.compiler import Compiler

Ties = Literal["rows", "rank", "dense_rank"]
_RANK, _NO_ORDER = "rank()", "any()"
"""No column that a query reads has such a name."""
_TIES: Mapping[str, Ties] = {"RowNumber": "rows", "Rank": "rank", "DenseRank": "dense_rank"}


def top_of(compiler: "Compiler", node: Node) -> Part | None:
    """The filter over a rank with a bound as the first rows of each key; None: it is another filter."""
    catalyst = compiler.catalyst
    [window] = each_of(node.children())
    if catalyst.kind(window) != "Window":
        return None
    calls = _calls_of(catalyst, window)
    if len(calls) != 1:
        return None
    ties = _TIES.get(catalyst.kind(calls[0].child().windowFunction()))
    if ties is None:
        return None
    bound = _bound(catalyst, node.condition(), calls[0].toAttribute())
    if bound is None or not 1 <= bound <= COUNT_MAX:
        return None  # `over` has all ranks
    part = _first_rows(compiler, window, calls[0], bound, ties)
    return part.then(lambda plan, _: catalyst.filtered(node.condition(), plan), tuple(each_of(node.output())))


def _calls_of(catalyst: Catalyst, window: Node) -> list[Expression]:
    """The functions of a window. In a LATERAL subquery Spark has columns of the rows outside among them."""
    return [each for each in each_of(window.windowExpressions()) if catalyst.kind(each) == "Alias"]


def limit_as_top(catalyst: Catalyst, node: Node) -> Node:
    """ORDER BY ... LIMIT n as a filter over row numbers; of constants, as in EXISTS, so too: it matters how many."""
    below, above, skipped, count = node.child(), [], 0, int(node.limitExpr().value())
    if count == 0 or (catalyst.kind(below) == "LocalLimit" and catalyst.has_at_most(count, below.child())):
        return _all_or_none(catalyst, below, count)
    while catalyst.kind(below) in ("LocalLimit", "Offset", "Project"):
        if catalyst.kind(below) == "Project":
            above.append(below)
        elif catalyst.kind(below) == "Offset":
            skipped += int(below.offsetExpr().value())
        below = below.child()
    if catalyst.kind(below) == "Sort":
        kept = _numbered_rows(catalyst, list(each_of(below.order())), below.child(), skipped, skipped + count)
    else:
        rows = _without_local_limits(catalyst, above.pop() if above else below)
        if _constants(catalyst, rows) is None:
            raise _any_rows()
        if (skipped, count) == (0, 1):
            kept = catalyst.deduplicated(rows)
        else:
            order = [catalyst.ascending(each) for each in each_of(rows.output())]
            kept = _numbered_rows(catalyst, order, rows, skipped, skipped + count)
    for project in reversed(above):
        kept = catalyst.on(project, kept)
    return kept


def _all_or_none(catalyst: Catalyst, node: Node, count: int) -> Node:
    while catalyst.kind(node) in ("LocalLimit", "Offset"):
        node = node.child()
    return node if count else catalyst.filtered(catalyst.constant(False), node)


def _any_rows() -> InvalidPipelineError:
    return InvalidPipelineError("LIMIT without ORDER BY may give any rows: say which by ORDER BY. found=LIMIT")


def without_limit(catalyst: Catalyst, node: Node, keys: Sequence[Expression]) -> Node:
    """Of rows of which it matters only whether there are any with these keys: without a LIMIT for each such key."""
    kind = catalyst.kind(node)
    if kind in ("GlobalLimit", "LocalLimit") and int(node.limitExpr().value()) > 0 and not keys:
        return without_limit(catalyst, node.child(), keys)
    if kind == "Project":
        below = without_limit(catalyst, node.child(), keys)
        return node if below is node.child() else catalyst.on(node, below)
    if kind != "Filter" or catalyst.kind(node.child()) != "Window":
        return node
    window = node.child()
    calls = _calls_of(catalyst, window)
    by_keys = _columns_in(catalyst, keys) <= _columns_in(catalyst, list(each_of(window.partitionSpec())))
    if window.orderSpec().size() or len(calls) != 1 or not by_keys:
        return node
    [number] = calls
    bound = _bound(catalyst, node.condition(), number.toAttribute())
    some = catalyst.kind(node.condition()) == "LessThanOrEqual" and bound is not None and bound > 0
    return window.child() if some else node


def _columns_in(catalyst: Catalyst, expressions: Sequence[Expression]) -> set[int]:
    parts = (part for each in expressions for part in nodes(each))
    return {column_number(part) for part in parts if is_column(catalyst, part)}


def _numbered_rows(catalyst: Catalyst, order: Sequence[Expression], rows: Node, after: int, upto: int) -> Node:
    """The rows behind the first `after` in an order, up to the number `upto`."""
    window = catalyst.numbered(order, rows)
    [number] = [each.toAttribute() for each in each_of(window.windowExpressions())]
    condition = catalyst.expressions.LessThanOrEqual(number, catalyst.constant(upto))
    if after:
        condition = catalyst.all_of([condition, catalyst.expressions.GreaterThan(number, catalyst.constant(after))])
    return catalyst.project(list(each_of(rows.output())), catalyst.filtered(condition, window))


def _without_local_limits(catalyst: Catalyst, node: Node) -> Node:
    """The plan without limits that Spark has brought below one, into the sides of a union too."""
    kind = catalyst.kind(node)
    if kind == "LocalLimit":
        return _without_local_limits(catalyst, node.child())
    if kind == "Union":
        return catalyst.on(node, *(_without_local_limits(catalyst, each) for each in each_of(node.children())))
    return node


def _constants(catalyst: Catalyst, rows: Node) -> list[str] | None:
    """The constants that every row has, as SQL; None: rows may have others."""
    kind = catalyst.kind(rows)
    if kind == "Union":
        first, *others = (_constants(catalyst, each) for each in each_of(rows.children()))
        return first if all(each == first for each in others) else None
    if kind not in ("Aggregate", "Project"):
        return None
    columns = list(each_of(rows.projectList() if kind == "Project" else rows.aggregateExpressions()))
    if not all(catalyst.kind(each) == "Alias" and each.child().foldable() for each in columns):
        return None
    return [str(each.child().sql()) for each in columns]


def over_partition(compiler: "Compiler", node: Node) -> Part:
    """Functions over a partition as a step."""
    catalyst = compiler.catalyst
    calls = _calls_of(catalyst, node)
    if not calls:  # in a LATERAL subquery, if the query reads none of them
        return compiler.below(node).then(lambda plan, _: plan, tuple(each_of(node.output())))
    plainer = in_plainer_functions(catalyst, node, calls)
    if plainer is not None:
        return compiler.part(plainer)
    arguments = []
    for named in calls:
        with located(catalyst, named.child()):
            arguments.append(arguments_of(catalyst, named.child().windowFunction()))
    rows = _Rows.of(compiler, node, [each for of_one in arguments for each in of_one])
    if not rows.by:
        rows = rows.in_any_order(catalyst)
    names, functions, made_by = iter(rows.more), dict[str, Over](), list[str]()
    for named, of_one in zip(calls, arguments, strict=True):
        with located(catalyst, named.child()):
            function = function_of(catalyst, named.child(), [next(names) for _ in of_one])
        made_by.append(_name_of(function))
        functions[made_by[-1]] = function
    functions = {name: functions[name] for name in sorted(functions)}
    with naming_columns([*made_by, *rows.columns.expressions], [*calls, *rows.columns.expressions.values()]):
        made = rows.stream().over(rows.by, **functions)
        types = types_of(made, len(functions))
    results = {name: catalyst.attribute("a", type_) for name, type_ in zip(functions, types, strict=True)}
    cast = [catalyst.cast(results[name], each.dataType()) for name, each in zip(made_by, calls, strict=True)]
    own = [
        *rows.columns.shown(catalyst, rows.output),
        *catalyst.standing_for(cast, [each.toAttribute() for each in calls]),
    ]
    part = Part(catalyst, (), stream=made, attributes=(*rows.columns.attributes.values(), *results.values()))
    return part.projected(own, tuple(each_of(node.output())))


def _name_of(function: Over) -> str:
    """The function as SQL has it, over the name of what it reads: `lag(delay, n=1)`."""
    options = [
        f"{name}={getattr(function, name)!r}"
        for name in ("n", "default", "rows", "range")
        if getattr(function, name) is not None
    ]
    return column_name(f"{function.function}({', '.join([*filter(None, [function.column]), *options])})")


def order_of(catalyst: Catalyst, term: Expression) -> Iterator[tuple[Expression, str]]:
    """The columns of a term of ORDER BY, each with its direction: of a struct its fields, where null is the least."""
    ascends = catalyst.kind(term.direction()) == "Ascending"
    nulls_first = catalyst.kind(term.nullOrdering()) == "NullsFirst"
    yield from _ordered(catalyst, term.child(), ascends=ascends, nulls_first=nulls_first)


def _ordered(
    catalyst: Catalyst, column: Expression, *, ascends: bool, nulls_first: bool
) -> Iterator[tuple[Expression, str]]:
    direction = "asc" if ascends else "desc"
    name = str(column.dataType().typeName())
    if name in ("array", "map", "variant"):
        raise InvalidPipelineError(
            "rows have no order by values of this type: order by its parts. "
            f"found={column.sql()}, type={column.dataType().simpleString()}"
        )
    if name != "struct":
        yield catalyst.by_collation(column), f"{direction} nulls {'first' if nulls_first else 'last'}"
        return
    yield catalyst.expressions.IsNull(column), "desc" if nulls_first else "asc"
    for number in range(len(column.dataType().fields())):
        yield from _ordered(catalyst, catalyst.field(column, number), ascends=ascends, nulls_first=ascends)


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
    output: tuple[Expression, ...]

    @classmethod
    def of(cls, compiler: "Compiler", window: Node, more: Sequence[Expression] = ()) -> "_Rows":
        catalyst = compiler.catalyst
        [child] = each_of(window.children())
        keys = [column for each in each_of(window.partitionSpec()) for column in Key(catalyst, each).columns()]
        terms = [term for each in each_of(window.orderSpec()) for term in order_of(catalyst, each)]
        output = tuple(each_of(child.output()))
        ordered = [column for column, _ in terms]
        read = compiler.part(child).named([*keys, *ordered, *more, *output])
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
            tuple(f"{quoted(name)} {text}" for name, text in by.items()),
            tuple(beside[len(ordered) :]),
            RowColumns.of(catalyst, leading, output, list(names)),
            output,
        )

    def in_any_order(self, catalyst: Catalyst) -> "_Rows":
        """The rows by whatever order: without one, all rows of a partition are one frame."""
        named = self.columns.expressions.items()
        found = (name for name, each in named if name not in self.keys and _has_own_order(catalyst, each))
        if (other := next(found, None)) is not None:
            return replace(self, by=(f"{quoted(other)} asc",))
        columns = self.columns.with_column(catalyst, _NO_ORDER, catalyst.parsed("1"))
        return replace(self, by=(f"{quoted(_NO_ORDER)} asc",), columns=columns)

    def stream(self) -> Stream:
        """The rows, by their keys."""
        rows = self.read.stream_of(self.columns.expressions)
        return rows.key_by(*self.keys) if self.keys else rows


def _has_own_order(catalyst: Catalyst, column: Expression) -> bool:
    """Whether a step orders rows by the column as it is."""
    type_ = column.dataType()
    return str(type_.typeName()) not in NESTED and not catalyst.is_collated(type_)


def _first_rows(compiler: "Compiler", window: Node, call: Expression, bound: int, ties: Ties) -> Part:
    catalyst, ordered = compiler.catalyst, _in_order_of_sort(compiler.catalyst, window)
    if bound == 1 and not window.orderSpec().size():  # ORDER BY ... LIMIT 1 in a subquery, for each row outside
        _refuse_as_of(compiler, ordered.child())
    rows = _Rows.of(compiler, ordered)
    if not rows.by:  # LIMIT in a subquery, for each row outside
        raise _any_rows()
    made = rows.stream().top(bound, rows.by, ties=ties, rank=_RANK)
    rank = call.toAttribute()
    shown, own = rows.columns.shown(catalyst, rows.output), [*rows.output, rank]
    part = Part(catalyst, (), stream=made, attributes=(*rows.columns.attributes.values(), rank))
    return part.projected([*shown, rank], own)


def _refuse_as_of(compiler: "Compiler", rows: Node) -> None:
    """Raise `InvalidPipelineError` where each row outside would meet every row of a stream that grows."""
    catalyst = compiler.catalyst
    while catalyst.kind(rows) in ("Project", "Filter"):
        rows = rows.child()
    if catalyst.kind(rows) != "Join" or not meets_all(catalyst, rows):
        return
    if any(compiler.part_that_streams(each).changes for each in each_of(rows.children())):
        return
    condition = catalyst.optional(rows.condition())
    with located(catalyst, rows if condition is None else condition):
        raise InvalidPipelineError(
            "the newest row up to each row's time would compare it with all rows of a stream that grows: join by equal "
            "keys and within a time, such as p.sku = o.sku AND p.at BETWEEN o.at - INTERVAL 7 DAYS AND o.at, and keep "
            "row_number() OVER (PARTITION BY o.id ORDER BY p.at DESC) = 1. "
            f"found=ORDER BY ... LIMIT 1 where {'' if condition is None else condition.sql()}"
        )


def _in_order_of_sort(catalyst: Catalyst, window: Node) -> Node:
    """The window in the order of a sort below it.

    Of ORDER BY ... LIMIT in a subquery for each row outside, Spark leaves the sort below where the result lacks its
    columns.
    """
    projects, below = [], window.child()
    while catalyst.kind(below) == "Project":
        projects.append(below)
        below = below.child()
    if window.orderSpec().size() or catalyst.kind(below) != "Sort":
        return window
    order, rows = list(each_of(below.order())), below.child()
    columns = _columns_in(catalyst, order)
    for project in reversed(projects):
        kept = list(each_of(project.projectList()))
        there = {column_number(each) for each in kept}
        more = [each for each in each_of(rows.output()) if column_number(each) in columns - there]
        rows = catalyst.project([*kept, *more], rows)
    return catalyst.window(_calls_of(catalyst, window), list(each_of(window.partitionSpec())), order, rows)


def _bound(catalyst: Catalyst, condition: Expression, rank: Expression) -> int | None:
    """The greatest rank that the condition lets through; None: it sets none."""
    kind = catalyst.kind(condition)
    if kind == "And":
        found = [_bound(catalyst, each, rank) for each in each_of(condition.children())]
        given = [each for each in found if each is not None]
        return min(given) if given else None
    if kind not in ("LessThan", "LessThanOrEqual", "EqualTo"):
        return None
    left, right = each_of(condition.children())
    if not left.semanticEquals(rank) or catalyst.kind(right) != "Literal":
        return None
    return int(right.value()) - (kind == "LessThan")
