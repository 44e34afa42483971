"""The text of what Spark does with rows on their way to a step: it is in the fingerprint of the step.

Names that a query gives are not in it, nor the order of its columns, so that neither needs another state. Columns of a
source have their names; columns of an earlier step have those by position (`compiler`).
"""

import re
from collections.abc import Sequence

from dagster_ckpt.runtime.declared.query_plan import columns_of, is_leaf, nodes, texts_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node

_FIELDS_MAX = 100_000
"""Spark shortens lists of more items in its texts."""
_DELAY = r"(?:-T\d+ms)?"
"""Behind a column with a watermark Spark has its delay, which nothing that is kept depends on."""


def text_of(catalyst: Catalyst, plan: Node) -> str:
    """What the plan does with the rows of its leaves, from the first on."""
    lines: list[str] = []
    names: dict[int, str] = {}
    of_leaves: dict[int, str] = {}
    for node in nodes(catalyst.collapsed(plan)):
        output = node.output()
        named = {number: name for name, number in columns_of(output)}
        names |= named
        if not is_leaf(node):
            lines.append(_as_sql(str(node.simpleString(_FIELDS_MAX)).strip(" ~")))
            continue
        of_leaves |= named
        if not node.isStreaming() and not catalyst.is_empty(node):  # a table beside the stream
            lines.append(f"{catalyst.kind(node)} {', '.join(texts_of(output))}")
    return _labelled("; ".join(reversed(lines)), names, of_leaves)


def in_canonical_order(expressions: Sequence[Expression], below: Node) -> list[Expression]:
    """Expressions over the rows of a node in an order that follows from what they compute, not from the query."""
    names = {number: name for name, number in columns_of(below.output())}
    places = {number: f"c{place}" for place, number in enumerate(names)}
    return sorted(expressions, key=lambda each: _labelled(str(each.toString()), names, places))


def _as_sql(line: str) -> str:
    for node, word in (("Project", "SELECT"), ("Filter", "WHERE")):
        if line.startswith(f"{node} "):
            return f"{word} {line.removeprefix(node).strip().removeprefix('[').removesuffix(']')}"
    return line


def _labelled(text: str, names: dict[int, str], of_leaves: dict[int, str]) -> str:
    """The text with a label for each column in place of its name and number: that of a leaf is its name."""
    labels: dict[int, str] = dict(of_leaves)
    pattern = "|".join(re.escape(f"{name}#{number}") for number, name in sorted(names.items(), reverse=True))
    if not pattern:
        return text

    def label(match: re.Match[str]) -> str:
        number = int(match.group(1).rpartition("#")[2])
        return labels.setdefault(number, f"_{len(labels) - len(of_leaves) + 1}")

    return re.sub(f"({pattern})(?![0-9])L?{_DELAY}", label, text)
