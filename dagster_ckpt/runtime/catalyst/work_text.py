"""The text of what Spark does with rows on their way to a step: which rows there are, and what each column is.

Both are in the fingerprint of the step, each by itself: the first as its `work`, the others as the names of the columns
that the step reads. So a column more or less changes no other, and neither names that a query gives nor the order of
its columns are in the state. Columns of a source, and those of an earlier step, have their names in these texts.
Spark's numbers and seeds are not in them (`plan_text`), so that another process has the same text.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.plan_text import (
    PYTHON_FUNCTIONS,
    Labels,
    call_number,
    in_pieces,
    node_line,
    shown_type,
)
from dagster_ckpt.runtime.catalyst.reader import with_texts
from dagster_ckpt.runtime.catalyst.values import (
    Aggregate,
    Expand,
    Expression,
    Filter,
    Generate,
    Java,
    Join,
    LocalRelation,
    Node,
    Projection,
    Window,
)

_WORD = re.compile(r"[^\W_]\w*")
_NAME_CHARS, _DIGEST_CHARS = 64, 10
_BY_COLLATION = "collationkey("
_SAME_ROWS = {
    "EventTimeWatermark",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "SubqueryAlias",
    "View",
}
"""Nodes that make no other rows, nor columns."""


@dataclass(frozen=True)
class WorkText:
    """`rows` says which rows a plan makes of those of its leaves; `columns` what each column of it is, in order."""

    rows: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, catalyst: Catalyst, plan: Java) -> "WorkText":
        """The texts of a projection: of its rows, and of each of its columns."""
        rules = catalyst.rules
        plan = rules.without_seeds(rules.without_inner_names(rules.collapse(plan)))
        node, without = with_texts(catalyst.session, plan)
        texts = _Texts(node)
        rows = "; ".join(texts.rows(node, without))
        own, *columns = _with_rules(catalyst, plan, [rows, *texts.of_columns(node)])
        return cls(own, tuple(_distinguish(node, columns)))

    def with_columns(self, names: Sequence[str]) -> str:
        """The whole text, with these names of the columns. Their order is not in it."""
        named = zip(names, self.columns, strict=True)
        shown = sorted(name if text == name else f"{text} AS {name}" for name, text in named)
        return "; ".join(each for each in (self.rows, f"SELECT {', '.join(shown)}") if each)


def column_name(text: str) -> str:
    """What a step has as the name of the column that this text says all of.

    A long one is cut, and one with a capital gets a digest too, since Spark may not tell it from another.
    """
    if len(text) <= _NAME_CHARS and (text == text.casefold() or _is_column(text)):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: _NAME_CHARS - _DIGEST_CHARS - 2]} #{digest}"


def is_cut(name: str) -> bool:
    """Whether the name of a column does not say all of it."""
    return re.search(rf" #[0-9a-f]{{{_DIGEST_CHARS}}}\b", name) is not None


def name_of_pair(mine: str, theirs: str) -> str:
    """The name of two columns that a join compares."""
    return mine if mine == theirs and _WORD.fullmatch(mine) else column_name(f"{mine} = {theirs}")


def in_canonical_order(
    catalyst: Catalyst, expressions: Sequence[Expression], below: Sequence[tuple[str, int]]
) -> list[Expression]:
    """Expressions over rows with the columns `below`, in an order that follows from what they compute."""
    if len(expressions) < 2:
        return list(expressions)
    keys_alone = catalyst.build.aggregate([each.java for each in expressions], [], catalyst.build.no_rows)
    node, other = with_texts(catalyst.session, keys_alone)
    texts, without = ([each.text for each in one.expressions] for one in (node, other))
    names = {number: name for name, number in below}
    places = {number: f"c{place}" for place, number in enumerate(names)}
    labels = Labels(_function_types(node), names, places)
    keys = [labels.text(in_pieces(*each, names)) for each in zip(texts, without, strict=True)]
    return [each for _, each in sorted(zip(keys, expressions, strict=True), key=lambda pair: pair[0])]


class _Texts:
    """The texts of a plan: `columns` by Spark's number of each column of every node that `rows` was asked for.

    Beside each node stands the same one without Spark's numbers, which shows where its texts have them.
    """

    def __init__(self, plan: Node) -> None:
        self.columns: dict[int, str] = {}
        self._names = {number: name for node in plan.with_subqueries() for name, number in node.output}
        self._labels = Labels(_function_types(plan), self._names, self.columns)
        self._tables = 0

    def rows(self, node: Node, other: Node) -> Iterator[str]:
        """What is done to get the rows of a node, from the first on; the node's columns are known then."""
        children = list(zip(node.children, other.children, strict=True))
        if not children:
            yield from self._leaf(node)
            return
        below = [list(self.rows(*child)) for child in children]
        self._label_subqueries(node, other)
        if len(below) == 1:
            yield from below[0]
            yield from self._above(node, other)
        else:
            sides = ", ".join(f"({'; '.join(lines)})" for lines in below)
            pairs = self._pairs(node, other) if isinstance(node, Join) and isinstance(other, Join) else ""
            yield f"{node.kind.upper()} {pairs}{sides}"
            if node.kind == "Union":
                self._unite(node, [self.of_columns(child) for child in node.children])
        for place, (name, number) in enumerate(node.output):
            # Of a node of another kind; a join adds at most one, which says whether there is a match.
            self.columns.setdefault(number, name if node.kind == "Join" else f"{node.kind}[{place}]")

    def of_columns(self, node: Node) -> list[str]:
        """The texts of a node's columns, in order."""
        return [self.columns[number] for _, number in node.output]

    def _leaf(self, node: Node) -> Iterator[str]:
        """Columns have their names. Those of a table beside the stream say so."""
        prefix = ""
        # No rows stand for the changes of a step.
        if not node.streams and not (isinstance(node, LocalRelation) and not node.rows):
            self._tables += 1
            prefix = f"table{self._tables}."
            yield f"TABLE {node.kind}"
        often = Counter(name.casefold() for name, _ in node.output)
        for name, number in node.output:
            self.columns[number] = prefix + _of_column(name, is_one=often[name.casefold()] == 1)

    def _above(self, node: Node, other: Node) -> Iterator[str]:
        """What a node does to the rows of the one below."""
        match node, other:
            case Projection(), Projection():
                self._name(node, node.columns, other.columns)
            case Aggregate(), Aggregate():
                self._name(node, node.columns, other.columns)
                yield f"GROUP BY {', '.join(sorted(self._each(node.keys, other.keys)))}"
            case Window(), Window():
                self._name(node, node.calls, other.calls)
            case Filter(), Filter():
                yield f"WHERE {' AND '.join(sorted(self._conjuncts(node.condition, other.condition)))}"
            case Generate(), Generate():
                yield f"GENERATE {'OUTER ' if node.outer else ''}{self._generator(node, other)}"
            case Expand(), Expand():
                each = [self._each(*pair) for pair in zip(node.projections, other.projections, strict=True)]
                yield f"EXPAND {len(each)}"
                self._unite(node, each)
            case _ if node.kind not in _SAME_ROWS:
                yield self._labels.text(node_line(node.java, other.java, self._names))

    def _pairs(self, node: Join, other: Join) -> str:
        """Which pairs a join makes."""
        if node.condition is None or other.condition is None:
            return f"{node.how} "
        return f"{node.how} ON {' AND '.join(sorted(self._conjuncts(node.condition, other.condition)))} "

    def _generator(self, node: Generate, other: Generate) -> str:
        """The text of a generator, whose columns are known then."""
        its = other.generator.text
        if node.generator.kind == "PythonUDTF":
            its = its.replace(f")#{call_number(node.generator.java)}", ")#0")
        text = self._text(node.generator.text, its)
        for place, each in enumerate(node.made):
            assert each.number is not None, "it is a column"
            self.columns[each.number] = text if len(node.made) == 1 else f"{text}[{place}]"
        return text

    def _label_subqueries(self, node: Node, other: Node) -> None:
        """A subquery over a table beside the stream is known by its text."""
        for part, its in zip(node.parts(), other.parts(), strict=True):
            if part.plan is not None and its.plan is not None and part.number is not None:
                lines = list(self.rows(part.plan, its.plan))
                columns = ", ".join(self.of_columns(part.plan))
                self.columns[part.number] = f"({'; '.join([*lines, f'SELECT {columns}'])})"

    def _unite(self, node: Node, branches: Sequence[Sequence[str]]) -> None:
        """A column is what it is in all branches."""
        for (_, number), texts in zip(node.output, zip(*branches, strict=True), strict=True):
            self.columns[number] = in_all(texts)

    def _name(self, node: Node, expressions: Sequence[Expression], others: Sequence[Expression]) -> None:
        """The columns that these expressions make, of which some only pass on what is there."""
        pairs = list(zip(expressions, others, strict=True))
        for (each, other), (name, number) in zip(pairs, node.output[-len(pairs) :], strict=False):
            own, its = _without_alias(each.text, name, number), _without_alias(other.text, name, 0)
            if own is not None and its is not None:
                self.columns[number] = self._text(own, its)

    def _each(self, expressions: Sequence[Expression], others: Sequence[Expression]) -> list[str]:
        return [self._text(one.text, other.text) for one, other in zip(expressions, others, strict=True)]

    def _conjuncts(self, condition: Expression, other: Expression) -> Iterator[str]:
        if condition.kind == "And":
            for pair in zip(condition.children, other.children, strict=True):
                yield from self._conjuncts(*pair)
        else:
            yield self._text(condition.text, other.text)

    def _text(self, expression: str, other: str) -> str:
        """The text of an expression; that of a constant is no column's."""
        pieces = in_pieces(expression, other, self._names)
        text = self._labels.text(pieces)
        return f"({text})" if len(pieces) == 1 and _WORD.fullmatch(text) else text


def _function_types(plan: Node) -> dict[int, str]:
    """The types of what calls of Python functions return, by Spark's numbers of the calls."""
    parts = (part for node in plan.with_subqueries() for part in node.parts() if part.kind in PYTHON_FUNCTIONS)
    return {call_number(each.java): shown_type(each.java) for each in parts}


def _without_alias(text: str, name: str, number: int) -> str | None:
    """The text of an expression without the name that it gets; None: it gets none."""
    found = re.fullmatch(rf"(.*) AS {re.escape(name)}#{number}L?(?:-T\d+ms)?", text, re.DOTALL)
    return None if found is None else found[1]


def _with_rules(catalyst: Catalyst, plan: Java, texts: Sequence[str]) -> list[str]:
    """The texts with the rules of collations: keys of others would stand beside those that are kept."""
    if not any(_BY_COLLATION in text for text in texts):
        return list(texts)
    rules = f"; keys by {', '.join(sorted(catalyst.convert.collation_keys_in(plan)))}"
    return [text + rules if _BY_COLLATION in text else text for text in texts]


def _distinguish(plan: Node, texts: Sequence[str]) -> Iterator[str]:
    """The texts; where two columns of a projection have one, and are not the same, with more that tells them apart.

    Spark writes the constant 'a' as it writes the column a. Two calls of `rand` differ in nothing that it writes.
    """
    often, meanings = Counter(texts), dict[str, list[Any]]()
    for place, text in enumerate(texts):
        if often[text] == 1:
            continue
        value, known = _value(plan, place).java, meanings.setdefault(text, [])
        if not any(other.semanticEquals(value) for other in known):
            known.append(value)
    written: dict[str, int] = {}
    for place, text in enumerate(texts):
        if len(meanings.get(text, ())) < 2:
            yield text
            continue
        expression = _value(plan, place)
        own: Any = expression.java
        sql = f"{text} {own.sql()}"
        written[sql] = written.get(sql, 0) + (not expression.deterministic)
        yield f"{sql} #{written[sql]}" if written[sql] > 1 else sql


def _value(plan: Node, place: int) -> Expression:
    assert isinstance(plan, Projection), "that of a projection is asked for"
    return plan.columns[place].value


def in_all(texts: Sequence[str]) -> str:
    """What a column is that several plans make."""
    return texts[0] if len(set(texts)) == 1 else f"union({', '.join(texts)})"


def _of_column(name: str, *, is_one: bool) -> str:
    """A column's name as no expression, no constant and no column that a step adds has one."""
    if not is_one:
        name = f"{name} #{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]}"
    if _WORD.fullmatch(name):
        return name
    found = _QUOTED.fullmatch(name)
    return f"`{name}`" if found is None else f"`{found[1]}`{int(found[2] or 1) + 1}"


_QUOTED = re.compile(r"`(.*)`(\d*)", re.DOTALL)
"""A column of an earlier step that was quoted there: so often."""


def _is_column(text: str) -> bool:
    return _WORD.fullmatch(text) is not None or _QUOTED.fullmatch(text) is not None
