"""The text of what Spark does with rows on their way to a step: it is in the fingerprint of the step.

Names that a query gives are not in it, nor the order of its columns, so that neither needs another state. Columns of a
source have their names; columns of an earlier step have those by position (`compiler`). Nor are Spark's numbers and
seeds in it (`plan_text`), so that another process has the same text.
"""

from collections.abc import Sequence

from dagster_ckpt.runtime.declared.plan_text import Labels, Pieces, in_pieces, node_line
from dagster_ckpt.runtime.declared.query_plan import columns_of, each_of, is_leaf, nodes, texts_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node


def text_of(catalyst: Catalyst, plan: Node) -> str:
    """What the plan does with the rows of its leaves, from the first on."""
    plan = catalyst.without_seeds(catalyst.collapsed(plan))
    labels = Labels(catalyst.function_types(plan))
    text = labels.text(_lines(catalyst, plan, catalyst.without_numbers(plan), labels))
    if "collationkey(" not in text:
        return text
    # Keys of other rules would stand beside those that are kept.
    return f"{text}; keys by {', '.join(sorted(catalyst.collation_keys_in(plan)))}"


def _lines(catalyst: Catalyst, plan: Node, without: Node, labels: Labels) -> Pieces:
    """The lines of a plan, from its leaves on. Before a node stand its subqueries, each in parentheses."""
    found = list(zip(nodes(plan), nodes(without), strict=True))
    outputs = [columns_of(node.output()) for node, _ in found]
    labels.names |= {number: name for output in outputs for name, number in output}
    lines, has_subqueries = list[Pieces](), catalyst.has_any(plan, "PLAN_EXPRESSION")
    for (node, other), output in zip(found, outputs, strict=True):
        if is_leaf(node):
            labels.given |= {number: name for name, number in output}
            if not node.isStreaming() and not catalyst.is_empty(node):  # a table beside the stream
                lines.append([(f"{catalyst.kind(node)} {', '.join(name for name, _ in output)}", None)])
            continue
        lines.append(_as_sql(node_line(node, other, labels.names)))
        if not has_subqueries:
            continue
        for subquery, its in zip(each_of(node.subqueries()), each_of(other.subqueries()), strict=True):
            lines.append([("(", None), *_lines(catalyst, subquery, its, labels), (")", None)])
    return [piece for line in reversed(lines) for piece in (("; ", None), *line)][1:]


def _as_sql(line: Pieces) -> Pieces:
    (first, number), *others = line
    if first.startswith("Filter "):
        return [(f"WHERE {first.removeprefix('Filter ').lstrip()}", number), *others]
    if not first.startswith("Project "):
        return line
    *before, (last, _) = [(f"SELECT {first.removeprefix('Project ').lstrip().removeprefix('[')}", number), *others]
    return [*before, (last.removesuffix("]"), None)]


def in_canonical_order(catalyst: Catalyst, expressions: Sequence[Expression], below: Node) -> list[Expression]:
    """Expressions over the rows of a node in an order that follows from what they compute, not from the query."""
    if len(expressions) < 2:
        return list(expressions)
    plan = catalyst.aggregate(expressions, [], catalyst.no_rows)
    texts, without = (texts_of(each.groupingExpressions()) for each in (plan, catalyst.without_numbers(plan)))
    names = {number: name for name, number in columns_of(below.output())}
    places = {number: f"c{place}" for place, number in enumerate(names)}
    labels = Labels(catalyst.function_types(plan), names, places)
    keys = [labels.text(in_pieces(*each, names)) for each in zip(texts, without, strict=True)]
    return [each for _, each in sorted(zip(keys, expressions, strict=True), key=lambda pair: pair[0])]
