"""Random queries in Spark's SQL.

Their result follows from the rows alone: where an order decides, it is total, or equal rows are alike in the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Column = tuple[str, str]
"""A name and a type (`tables.TYPES`; "int" has all integers)."""

JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
SETS = ("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
LITERALS = {
    "int": ["0", "1", "2"],
    "string": ["'a'", "'b'", "''"],
    "decimal": ["CAST(1.25 AS DECIMAL(8, 2))", "CAST(0 AS DECIMAL(8, 2))"],
    "double": ["0.5D", "0D"],
    "boolean": ["true", "false"],
    "timestamp": ["TIMESTAMP '2024-01-01 01:00:00'"],
}
FRAMES = (
    None,
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING",
    "",
)
"""Those of a function over a partition; None: the partition as a whole."""
SUMMED = ("int", "decimal", "double")
_OF_ONE = (
    "sum", "avg", "min", "max", "median", "stddev", "stddev_pop", "variance", "var_pop", "skewness", "kurtosis",
    "count", "approx_count_distinct",
)  # fmt: skip
_OF_TWO = (
    "corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy",
    "regr_avgx", "regr_avgy", "regr_count",
)  # fmt: skip
OF_ALL_NUMBERS = f"""
    SELECT k, {", ".join(f"{name}(y) AS {name}" for name in _OF_ONE)},
        {", ".join(f"{name}(y, x) AS {name}" for name in _OF_TWO)},
        {", ".join(f"{name}(x, y) AS {name}_turned" for name in _OF_TWO if name.startswith(("corr", "regr")))},
        max_by(x, x) AS last, min_by(x, x) AS least, sum(DISTINCT y) AS kinds, avg(DISTINCT y) AS of_kinds,
        count(DISTINCT y, x) AS pairs, percentile(y, array(0.1, 0.5, 1)) AS some, collect_set(y) IS NULL AS none,
        mode() WITHIN GROUP (ORDER BY y) AS often, array_sort(collect_list(y)) AS all,
        percentile_disc(0.3) WITHIN GROUP (ORDER BY y) AS third
    FROM t GROUP BY GROUPING SETS ((k), ())
"""
"""Each aggregate of numbers, over `t (k, y, x)`."""
TWICE, STATIC = "twice", "static"
"""A function in Python, and a table that does not stream: whole numbers `n`."""


@dataclass(frozen=True)
class Relation:
    """A SELECT, and its columns."""

    sql: str
    columns: tuple[Column, ...]

    def __str__(self) -> str:
        return f"({self.sql})"


class Writer:
    """Writes a query; `depth` bounds how far it nests. One in `rows_one_in` comparisons is of rows; 0: none is."""

    def __init__(self, draw: st.DrawFn, tables: dict[str, dict[str, str]], rows_one_in: int = 5) -> None:
        self._draw, self._tables, self._rows_one_in = draw, tables, rows_one_in
        self._names = 0

    def query(self, depth: int) -> Relation:
        """A relation over the tables."""
        if depth == 0:
            return self._source()
        return self._one_of(self._operations)(depth - 1)

    @cached_property
    def _operations(self) -> Sequence[Callable[[int], Relation]]:
        return (
            self._projected,
            self._filtered,
            self._aggregated,
            self._aggregated,
            self._joined,
            self._joined,
            self._combined,
            self._grouping,
            self._pivoted,
            self._exploded,
            self._distinct,
            self._ranked,
            self._limited,
            self._over,
            self._in_subquery,
            self._scalar_subquery,
            self._beside_itself,
            self._computed_of_groups,
            self._in_windows_of_time,
            self._lateral,
        )

    # Relations

    def _source(self) -> Relation:
        table = self._one_of(sorted(self._tables))
        columns = self._tables[table]
        named = [(name, self._name(), type_) for name, type_ in columns.items()]
        listed = ", ".join(f"{name} AS {alias}" for name, alias, _ in named)
        return Relation(f"SELECT {listed} FROM {table}", tuple((alias, type_) for _, alias, type_ in named))

    def _projected(self, depth: int) -> Relation:
        below = self.query(depth)
        kept = self._some(below.columns)
        made = [(self._name(), *self._expression(below.columns)) for _ in range(self._number(0, 2))]
        listed = ", ".join([*(name for name, _ in kept), *(f"{sql} AS {name}" for name, sql, _ in made)])
        columns = (*kept, *((name, type_) for name, _, type_ in made))
        return Relation(f"SELECT {listed} FROM {below}", columns)

    def _filtered(self, depth: int) -> Relation:
        below = self.query(depth)
        return Relation(f"SELECT * FROM {below} WHERE {self._condition(below.columns)}", below.columns)

    def _aggregated(self, depth: int) -> Relation:
        below = self.query(depth)
        keys = self._some(below.columns, least=0, most=2)
        calls = [(self._name(), *self._call(below.columns)) for _ in range(self._number(1, 3))]
        listed = ", ".join([*(name for name, _ in keys), *(f"{sql} AS {name}" for name, sql, _ in calls)])
        grouped = f" GROUP BY {', '.join(name for name, _ in keys)}" if keys else ""
        having = f" HAVING count(*) > {self._number(0, 2)}" if keys and self._chance() else ""
        columns = (*keys, *((name, type_) for name, _, type_ in calls))
        return Relation(f"SELECT {listed} FROM {below}{grouped}{having}", columns)

    def _grouping(self, depth: int) -> Relation:
        below = self.query(depth)
        keys = self._some(below.columns, least=1, most=2)
        name, (sql, type_) = self._name(), self._call(below.columns)
        names = ", ".join(name for name, _ in keys)
        sets = self._one_of([f"CUBE({names})", f"ROLLUP({names})", f"GROUPING SETS (({names}), ({keys[0][0]}), ())"])
        return Relation(f"SELECT {names}, {sql} AS {name} FROM {below} GROUP BY {sets}", (*keys, (name, type_)))

    def _pivoted(self, depth: int) -> Relation:
        below = self.query(depth)
        pivot, key, value = (self._one_of(below.columns) for _ in range(3))
        key_name, names = self._name(), [self._name() for _ in LITERALS[pivot[1]]]
        rows = f"SELECT {key[0]} AS {key_name}, {pivot[0]} AS p, {value[0]} AS v FROM {below}"
        pivots = ", ".join(f"{one} AS {name}" for one, name in zip(LITERALS[pivot[1]], names, strict=True))
        text = f"SELECT * FROM ({rows}) PIVOT (max(v) FOR p IN ({pivots}))"
        return Relation(text, ((key_name, key[1]), *((name, value[1]) for name in names)))

    def _exploded(self, depth: int) -> Relation:
        below, name = self.query(depth), self._name()
        whole = [column for column, type_ in below.columns if type_ == "int"]
        if whole and self._chance():
            some = f"filter(array({self._one_of(whole)}, 1, 2), x -> x > {self._number(0, 2)})"
            text = f"SELECT * FROM {below} LATERAL VIEW explode({some}) AS {name}"
            return Relation(text, (*below.columns, (name, "int")))
        text = f"SELECT * FROM {below} LATERAL VIEW explode(sequence(1, {self._number(1, 2)})) AS {name}"
        return Relation(text, (*below.columns, (name, "int")))

    def _beside(self, depth: int) -> Relation:
        """What stands beside the rows of tables: other ones, or constants."""
        if self._chance(5):
            columns = [(self._name(), self._one_of(["int", "string"])) for _ in range(2)]
            rows = [f"({', '.join(self._one_of([*LITERALS[kind], 'NULL']) for _, kind in columns)})" for _ in range(2)]
            typed = f"({', '.join(LITERALS[kind][0] for _, kind in columns)})"
            listed = ", ".join(name for name, _ in columns)
            return Relation(f"SELECT * FROM VALUES {', '.join([typed, *rows])} AS v({listed})", tuple(columns))
        return self.query(self._number(0, depth))

    def _joined(self, depth: int) -> Relation:
        left, right = self.query(depth), self._beside(depth)
        how = self._one_of(JOINS)
        condition = self._equal(left.columns, right.columns)
        if condition is None:
            how, condition = "JOIN", "true"
        elif self._chance(3):
            condition += f" AND {self._condition((*left.columns, *right.columns))}"
        columns = left.columns if "SEMI" in how or "ANTI" in how else (*left.columns, *right.columns)
        a, b = self._name(), self._name()
        return Relation(f"SELECT * FROM {left} {a} {how} {right} {b} ON {condition}", columns)

    def _combined(self, depth: int) -> Relation:
        left, right = self.query(depth), self._beside(depth)
        pairs = [
            (mine, next(iter(other for other in right.columns if other[1] == mine[1]), None)) for mine in left.columns
        ]
        fit = [(mine, other) for mine, other in pairs if other is not None][:2]
        if not fit:
            return self._distinct_of(left)
        kind = self._one_of(SETS)
        if self._rows_one_in and self._chance(self._rows_one_in):
            return self._combined_rows(left, right, kind, [(mine[0], other[0], mine[1]) for mine, other in fit])
        ours, theirs = (", ".join(each[side][0] for each in fit) for side in (0, 1))
        names = [(self._name(), mine[1]) for mine, _ in fit]
        renamed = ", ".join(f"{mine[0]} AS {name}" for (mine, _), (name, _) in zip(fit, names, strict=True))
        whole = f"(SELECT {ours} FROM {left}) {kind} (SELECT {theirs} FROM {right})"
        return Relation(f"SELECT {renamed} FROM ({whole})", tuple(names))

    def _combined_rows(
        self, left: Relation, right: Relation, kind: str, pairs: Sequence[tuple[str, str, str]]
    ) -> Relation:
        ours, theirs = self._rows(pairs)
        both, name = self._name(), self._name()
        whole = f"(SELECT {ours} AS {both} FROM {left}) {kind} (SELECT {theirs} AS {both} FROM {right})"
        return Relation(f"SELECT CAST({both} AS STRING) AS {name} FROM ({whole})", ((name, "string"),))

    def _distinct(self, depth: int) -> Relation:
        return self._distinct_of(self.query(depth))

    def _distinct_of(self, below: Relation) -> Relation:
        kept = self._some(below.columns)
        return Relation(f"SELECT DISTINCT {', '.join(name for name, _ in kept)} FROM {below}", kept)

    def _ranked(self, depth: int) -> Relation:
        below = self.query(depth)
        keys = self._some(below.columns, least=0, most=1)
        rank, name = self._one_of(["row_number", "rank", "dense_rank"]), self._name()
        order = self._order(below.columns if rank == "row_number" else self._some(below.columns))
        over = f"{_partition(keys)}ORDER BY {order}"
        numbered = f"SELECT *, {rank}() OVER ({over}) AS {name} FROM {below}"
        return Relation(
            f"SELECT * FROM ({numbered}) WHERE {name} <= {self._number(1, 3)}", (*below.columns, (name, "int"))
        )

    def _limited(self, depth: int) -> Relation:
        below = self.query(depth)
        order = self._order(below.columns)
        return Relation(f"SELECT * FROM {below} ORDER BY {order} LIMIT {self._number(1, 4)}", below.columns)

    def _over(self, depth: int) -> Relation:
        below = self.query(depth)
        keys = self._some(below.columns, least=0, most=1)
        name, (sql, type_) = self._name(), self._window_call(below.columns)
        ordered = f"ORDER BY {self._order(below.columns)}"
        some = f" FILTER (WHERE {self._condition(below.columns)})" if self._chance(4) else ""
        if sql.endswith("(*)") or sql.startswith(("sum(", "max(")):  # of a frame
            frame = self._one_of(FRAMES)
            ordered = "" if frame is None else f"{ordered} {frame}"
            sql += some
        elif sql.startswith(("first_value(", "last_value(")):
            sql += some
        function = f"{sql} OVER ({_partition(keys)}{ordered})"
        return Relation(f"SELECT *, {function} AS {name} FROM {below}", (*below.columns, (name, type_)))

    def _in_subquery(self, depth: int) -> Relation:
        below = self.query(depth)
        asked = [each for _ in range(self._number(1, 2)) if (each := self._asked(below, depth)) is not None]
        if not asked:
            return below
        if any(" NOT IN " in each for each in asked):
            return Relation(f"SELECT * FROM {below} WHERE {' AND '.join(asked)}", below.columns)
        if self._chance(4):
            name = self._name()
            return Relation(f"SELECT *, {asked[0]} AS {name} FROM {below}", (*below.columns, (name, "boolean")))
        if self._chance(3):
            asked.append(self._condition(below.columns))
        both = self._one_of([" AND ", " OR "]).join(asked)
        return Relation(f"SELECT * FROM {below} WHERE {both}", below.columns)

    def _asked(self, below: Relation, depth: int) -> str | None:
        """Whether a value or a row is among those of a subquery; None: it has no column of the same type."""
        other = self._beside(depth)
        condition = self._equal(below.columns, other.columns)
        if condition is None:
            return None
        mine, theirs = condition.split(" = ")
        mine, theirs = (f"struct{each}" if each.startswith("(") else each for each in (mine, theirs))
        no = self._one_of(["", "NOT "])
        if self._chance():
            return f"{mine} {no}IN (SELECT {theirs} FROM {other})"
        more = f" AND {self._condition((*below.columns, *other.columns))}" if self._chance(3) else ""
        return f"{no}EXISTS (SELECT 1 FROM {other} WHERE {condition}{more})"

    def _scalar_subquery(self, depth: int) -> Relation:
        below, name = self.query(depth), self._name()
        if self._chance(4):
            value = f"(SELECT max(n) FROM {STATIC} WHERE n < {self._number(1, 3)})"
            return Relation(f"SELECT *, {value} AS {name} FROM {below}", (*below.columns, (name, "int")))
        other = self.query(self._number(0, depth))
        call, type_ = self._call(other.columns)
        condition = self._equal(below.columns, other.columns)
        correlated = f" WHERE {condition}" if condition is not None and self._chance() else ""
        value = f"(SELECT {call} FROM {other}{correlated})"
        return Relation(f"SELECT *, {value} AS {name} FROM {below}", (*below.columns, (name, type_)))

    def _beside_itself(self, depth: int) -> Relation:
        below = self.query(depth)
        name, (key, _) = self._name(), self._one_of(below.columns)
        again = [(self._name(), kind) for _, kind in below.columns]
        renamed = ", ".join(f"{own} AS {new}" for (own, _), (new, _) in zip(below.columns, again, strict=True))
        other = again[[each for each, _ in below.columns].index(key)][0]
        text = f"WITH {name} AS {below} SELECT * FROM {name} JOIN (SELECT {renamed} FROM {name}) ON {key} = {other}"
        return Relation(text, (*below.columns, *again))

    def _computed_of_groups(self, depth: int) -> Relation:
        """Groups by an expression, with what is computed of them and of a subquery of one value."""
        below, other = self.query(depth), self.query(self._number(0, depth))
        key, value = self._expression(below.columns), self._one_of(below.columns)[0]
        total = f"(SELECT count({self._one_of(other.columns)[0]}) FROM {other})"
        names = [self._name() for _ in range(3)]
        listed = f"{key[0]} AS {names[0]}, count({value}) + {total} AS {names[1]}, count(*) * 2 AS {names[2]}"
        having = f" HAVING count(*) < {total}" if self._chance() else ""
        columns = ((names[0], key[1]), (names[1], "int"), (names[2], "int"))
        return Relation(f"SELECT {listed} FROM {below} GROUP BY {key[0]}{having}", columns)

    def _in_windows_of_time(self, depth: int) -> Relation:
        below, times = self.query(depth), "TIMESTAMP '2024-01-01 00:00:00'"
        of_time = [name for name, type_ in below.columns if type_ == "timestamp"]
        time = self._one_of(of_time) if of_time else f"CASE WHEN {self._condition(below.columns)} THEN {times} END"
        size = self._one_of(["'2 hours'", "'2 hours', '1 hour'"])
        name, start, (sql, type_) = self._name(), self._name(), self._call(below.columns)
        rows = f"SELECT *, {time} AS at FROM {below}"
        text = f"SELECT window.start AS {start}, {sql} AS {name} FROM ({rows}) GROUP BY window(at, {size})"
        return Relation(text, ((start, "timestamp"), (name, type_)))

    def _lateral(self, depth: int) -> Relation:
        below, other = self.query(depth), self.query(self._number(0, depth))
        condition = self._equal(below.columns, other.columns)
        if condition is None:
            return below
        name, (sql, type_) = self._name(), self._call(other.columns)
        of_each = f"LATERAL (SELECT {sql} AS {name} FROM {other} WHERE {condition})"
        return Relation(f"SELECT * FROM {below}, {of_each}", (*below.columns, (name, type_)))

    # Expressions

    def _condition(self, columns: Sequence[Column]) -> str:
        name, type_ = self._one_of(columns)
        kind = self._number(0, 4)
        if kind == 0:
            return f"{name} IS {self._one_of(['', 'NOT '])}NULL"
        if kind == 1 and len(columns) > 1:
            return f"({self._condition(columns[:1])} {self._one_of(['AND', 'OR'])} {self._condition(columns[1:])})"
        if type_ == "boolean":
            return f"{self._one_of(['', 'NOT '])}{name}"
        return f"{name} {self._one_of(['=', '<>', '<', '<=', '<=>'])} {self._one_of(LITERALS[type_])}"

    def _expression(self, columns: Sequence[Column]) -> tuple[str, str]:
        name, type_ = self._one_of(columns)
        literal = self._one_of(LITERALS[type_])
        choices = {
            "int": [
                (f"{name} % 3", "int"),
                (f"CAST({name} AS STRING)", "string"),
                (f"-{name}", "int"),
                (f"{TWICE}({name})", "int"),
                (f"aggregate(array({name}, 1), 0L, (x, y) -> x - y)", "int"),
            ],
            "string": [
                (f"upper({name})", "string"),
                (f"length({name})", "int"),
                (f"concat({name}, 'x')", "string"),
                (f"array_join(transform(array({name}, 'k#7'), x -> upper(x)), ',')", "string"),
            ],
            "decimal": [(f"CAST({name} AS DOUBLE)", "double"), (f"abs({name})", "decimal")],
            "double": [(f"{name} + 0.5D", "double"), (f"isnan({name})", "boolean")],
            "boolean": [(f"NOT {name}", "boolean"), (f"CAST({name} AS INT)", "int")],
            "timestamp": [(f"date_trunc('HOUR', {name})", "timestamp"), (f"hour({name})", "int")],
        }
        of_all = [
            (f"coalesce({name}, {literal})", type_),
            (f"CASE WHEN {self._condition(columns)} THEN {name} END", type_),
        ]
        return self._one_of([*choices[type_], *of_all])

    def _call(self, columns: Sequence[Column]) -> tuple[str, str]:
        name, type_ = self._one_of(columns)
        calls = [
            ("count(*)", "int"),
            (f"count({name})", "int"),
            (f"count(DISTINCT {name})", "int"),
            (f"min({name})", type_),
            (f"max({name})", type_),
            (f"mode() WITHIN GROUP (ORDER BY {name})", type_),
            (f"max_by({name}, {name})", type_),
            (f"approx_count_distinct({name})", "int"),
            (f"count(DISTINCT {name}, {self._one_of(columns)[0]})", "int"),
            (f"array_join(sort_array(collect_list(CAST({name} AS STRING))), ',')", "string"),
        ]
        if type_ in SUMMED:
            calls += [(f"sum({name})", type_), (f"avg({name})", "decimal" if type_ == "decimal" else "double")]
        if type_ == "int":
            calls += [(f"sum(DISTINCT {name})", "int"), (f"bit_xor({name})", "int")]
        if type_ == "boolean":
            calls += [(f"bool_and({name})", "boolean"), (f"bool_or({name})", "boolean"), (f"count_if({name})", "int")]
        sql, made = self._one_of(calls)
        if self._chance(4) and not sql.startswith("array_join"):
            sql += f" FILTER (WHERE {self._condition(columns)})"
        return sql, made

    def _window_call(self, columns: Sequence[Column]) -> tuple[str, str]:
        name, type_ = self._one_of(columns)
        calls = [("row_number()", "int"), (f"lag({name})", type_), (f"lead({name})", type_), (f"max({name})", type_)]
        calls += [("count(*)", "int"), (f"first_value({name})", type_), (f"last_value({name})", type_)]
        return self._one_of([*calls, *([(f"sum({name})", type_)] if type_ in SUMMED else [])])

    def _equal(self, ours: Sequence[Column], theirs: Sequence[Column]) -> str | None:
        """`a = b` of two columns of one type, or of rows of such; None: there are none."""
        pairs = [(mine, other, kind) for mine, type_ in ours for other, kind in theirs if kind == type_]
        if not pairs:
            return None
        if self._rows_one_in and self._chance(self._rows_one_in):
            return " = ".join(self._rows([self._one_of(pairs) for _ in range(self._number(1, 2))]))
        mine, other, _ = self._one_of(pairs)
        return f"{mine} = {other}"

    def _rows(self, pairs: Sequence[tuple[str, str, str]]) -> tuple[str, str]:
        """A row for each side, whose fields may be null on both sides, on one of them or on none."""
        kinds = [self._one_of([kind, "boolean"]) for *_, kind in pairs]
        ours, theirs = (
            [self._field(pair[side], pair[2], kind) for pair, kind in zip(pairs, kinds, strict=True)] for side in (0, 1)
        )
        wrap = self._one_of(["struct({})", "({}, 1)", "struct(struct({}) AS f)"])
        return wrap.format(", ".join(ours)), wrap.format(", ".join(theirs))

    def _field(self, name: str, type_: str, kind: str) -> str:
        """A value of a kind, made of a column of a type."""
        literal = self._one_of(LITERALS[kind])
        of_kind = [name, f"coalesce({name}, {literal})"] if type_ == kind else []
        of_any = [f"isnull({name})", f"isnotnull({name})"] if kind == "boolean" else []
        return self._one_of([literal, *of_kind, *of_any])

    def _order(self, columns: Sequence[Column]) -> str:
        """All of these columns, in some order."""
        return ", ".join(
            f"{name}{self._one_of(['', ' DESC', ' ASC NULLS LAST'])}"
            for name, _ in self._draw(st.permutations(columns))
        )

    # Chance

    def _some(self, columns: Sequence[Column], least: int = 1, most: int = 3) -> tuple[Column, ...]:
        return tuple(self._draw(st.permutations(columns))[: self._number(least, most)])

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _one_of(self, choices: Sequence[T]) -> T:
        return self._draw(st.sampled_from(choices))

    def _number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def _chance(self, one_in: int = 2) -> bool:
        return self._number(1, one_in) == 1


def _partition(keys: Sequence[Column]) -> str:
    return f"PARTITION BY {keys[0][0]} " if keys else ""


@st.composite
def comparisons_of_rows(draw: st.DrawFn, tables: dict[str, dict[str, str]]) -> str:
    """A query that compares rows: a join, a set operation, or one with a subquery."""
    writer = Writer(draw, tables, rows_one_in=1)
    return draw(st.sampled_from([writer._joined, writer._combined, writer._in_subquery]))(draw(st.integers(0, 1))).sql


@st.composite
def queries(draw: st.DrawFn, tables: dict[str, dict[str, str]], depth_max: int = 4) -> str:
    """A query over these tables, by their columns."""
    return Writer(draw, tables).query(draw(st.integers(1, depth_max))).sql
