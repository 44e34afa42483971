"""What the source of a streaming function shows without a run of it, which would need Spark."""

import ast
import inspect
from collections.abc import Callable
from textwrap import dedent

from dagster_ckpt.errors import InvalidPipelineError


def check_source(function: Callable[..., object]) -> None:
    """Raise `InvalidPipelineError` where the function calls `key_by()` without a column.

    A function without readable source, such as one made at run time, is checked when it is called.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # the last: a lambda, or one within an expression
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _has_no_column(node, node.func):
            raise InvalidPipelineError(
                "key_by needs at least one column; for one row over everything leave key_by out. "
                f"file={inspect.getsourcefile(function)}, line={first + node.lineno - 1}"
            )


def _has_no_column(call: ast.Call, method: ast.Attribute) -> bool:
    """Whether it calls `key_by` without columns. The number of `*columns` is unknown."""
    return method.attr == "key_by" and not call.args and all(given.arg is not None for given in call.keywords)
