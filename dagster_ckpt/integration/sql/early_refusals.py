"""What the text of a query alone shows that no stream can keep up to date, so that it is said without Spark.

Spark reads the text when the stream starts, and the plan then refuses the same: where it might not, nothing is said.
"""

from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from dagster_ckpt.integration.sql.statements import Query
from dagster_ckpt.operators.over import Function
from dagster_ckpt.operators.rows.over.over_checks import BOUND_MAX, LEAST

_NUMBERED: dict[type[exp.Expr], tuple[Function, str]] = {
    exp.NthValue: (Function.NTH_VALUE, "offset"),
    exp.Ntile: (Function.NTILE, "this"),
    exp.Lag: (Function.LAG, "offset"),
    exp.Lead: (Function.LEAD, "offset"),
}


def refuse_early(
    query: Query, tree: exp.Expr, is_own_name: Callable[[exp.Table], bool], views: Collection[str]
) -> None:
    """Raise `InvalidPipelineError`, with the line, for what cannot be kept up to date whatever the tables have.

    `is_own_name` is whether a table is a query of a WITH, `views` are the names of other queries, in lower case.
    """
    for select in tree.find_all(exp.Select):
        names = [table for table in _tables_in(select) if not is_own_name(table)]
        tables = [table for table in names if len(table.parts) > 1 or table.name.lower() not in views]
        if tables and _takes_any_rows(select):
            raise query.place(_limit(query, select)).error(
                "LIMIT without ORDER BY may give any rows: say which by ORDER BY.", found=select.args["limit"].sql()
            )
    for spec in tree.find_all(exp.WindowSpec):
        bounds = (_number(spec.args.get(name)) for name in ("start", "end"))
        if spec.args.get("kind") == "ROWS" and any(each is not None and each > BOUND_MAX for each in bounds):
            raise query.place(_start(spec)).error(
                f"a bound is at most {BOUND_MAX} rows away, since so many are read beside each change: give a nearer "
                "one, or UNBOUNDED.",
                found=spec.sql(),
            )
    for kind, (function, argument) in _NUMBERED.items():
        least = LEAST.get(function, -BOUND_MAX)
        for call in tree.find_all(kind):
            n = _number(call.args.get(argument))
            if n is not None and not least <= n <= BOUND_MAX and not isinstance(call.parent, exp.IgnoreNulls):
                raise query.place(_start(call)).error(
                    f"{function} takes a whole number from {least} to {BOUND_MAX}.", found=call.sql()
                )


def _takes_any_rows(select: exp.Select) -> bool:
    """Whether LIMIT picks some of many rows, in no order. In EXISTS it matters only whether there are any."""
    limit = select.args.get("limit")
    count = _number(limit.expression) if isinstance(limit, exp.Limit) else None
    if not count or any(select.args.get(clause) for clause in ("order", "sort", "cluster")):
        return False
    if isinstance(select.parent, exp.Exists) or select.find_ancestor(exp.Exists) is not None:
        return False
    grouped = select.args.get("group") or select.args.get("distinct")
    has_rows = any(each.find(exp.Column, exp.Star) for each in select.expressions)
    is_one_row = not grouped and any(_aggregates(each) for each in select.expressions)
    return has_rows and not is_one_row


def _aggregates(column: exp.Expr) -> bool:
    """Whether a column may be an aggregate of all rows, by a function that sqlglot knows or not."""
    calls = column.find_all(exp.AggFunc, exp.Anonymous, exp.AnonymousAggFunc)
    return any(not isinstance(each.parent, exp.Window) for each in calls)


def _tables_in(select: exp.Select) -> Iterator[exp.Table]:
    """The tables in FROM and JOIN of the query itself."""
    sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
    return (each.this for each in sources if each is not None and isinstance(each.this, exp.Table))


def _number(given: object) -> int | None:
    """The integer literal, with its sign; None for anything else."""
    sign = 1
    if isinstance(given, exp.Neg):
        sign, given = -1, given.this
    is_number = isinstance(given, exp.Literal) and not given.is_string and given.this.isdigit()
    return sign * int(given.this) if isinstance(given, exp.Literal) and is_number else None


def _limit(query: Query, select: exp.Select) -> int:
    """The offset of a query's LIMIT in the text."""
    after = max((each.meta.get("end", 0) for each in select.find_all(exp.Identifier, exp.Star)), default=0)
    return max(query.text.upper().find("LIMIT", after), 0)


def _start(part: exp.Expr) -> int:
    """Where a part is in the text, as far as the names in it or around it say."""
    while True:
        starts = [each.meta["start"] for each in part.find_all(exp.Identifier) if "start" in each.meta]
        if starts or part.parent is None:
            return min(starts, default=0)
        part = part.parent
