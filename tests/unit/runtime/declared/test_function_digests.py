"""A digest of a function's code changes with its behaviour, and with nothing else."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dagster_ckpt.runtime.declared.function_digests import changed_functions, digest

OTHER_TEXT = {
    "its body": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "a default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "a helper of its module": (
        "def g(x): return x\ndef f(x): return g(x)",
        "def g(x): return -x\ndef f(x): return g(x)",
    ),
    "a constant of its module": ("K = 1\ndef f(x): return x + K", "K = 2\ndef f(x): return x + K"),
    "what a lambda within it does": (
        "def f(x): return sorted(x, key=lambda y: y)",
        "def f(x): return sorted(x, key=lambda y: -y)",
    ),
    "what it captures": (
        "def made(n): return lambda x: x + n\nf = made(1)",
        "def made(n): return lambda x: x + n\nf = made(2)",
    ),
    "a method": (
        "class C:\n  def __init__(self): self.n = 1\n  def on_rows(self): return self.n\nf = C()",
        "class C:\n  def __init__(self): self.n = 1\n  def on_rows(self): return -self.n\nf = C()",
    ),
    "what an object keeps": (
        "class C:\n  def __init__(self, n): self.n = n\nf = C(1)",
        "class C:\n  def __init__(self, n): self.n = n\nf = C(2)",
    ),
    "a method of its base": (
        "class B:\n  def g(self): return 1\nclass f(B):\n  pass",
        "class B:\n  def g(self): return 2\nclass f(B):\n  pass",
    ),
}
SAME = {
    "comments and layout": ("def f(x): return x + 1", "# about f\ndef f(\n    x,\n):\n    return x + 1  # one more"),
    "another function of the module": ("def f(x): return x", "def g(x): return 2 * x\ndef f(x): return x"),
    "the order of a set": ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'b', 'a'}"),
    "a list that has itself": (
        "K = []\nK.append(K)\ndef f(x, y=K): return x",
        "K = []\nK.append(K)\ndef f(x, y=K): return x",
    ),
    "functions that call each other": (
        "def f(x): return g(x)\ndef g(x): return f(x)",
        "def f(x): return g(x)\n\ndef g(x): return f(x)",
    ),
}


def defined(text: str) -> Callable[..., Any]:
    module = ModuleType("users")
    exec(text, vars(module))
    found: Callable[..., Any] = vars(module)["f"]
    return found


@pytest.mark.parametrize(("before", "after"), OTHER_TEXT.values(), ids=OTHER_TEXT)
def test_it_changes_with(before: str, after: str) -> None:
    assert digest(defined(before)) != digest(defined(after))


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_it_stays_with_other(before: str, after: str) -> None:
    assert digest(defined(before)) == digest(defined(after))


def test_only_functions_that_both_have_compiled_by_one_python_can_have_changed() -> None:
    before = (("a", "3.12:1"), ("b", "3.12:1"), ("c", "3.11:1"), ("gone", "3.12:1"))
    now = (("a", "3.12:2"), ("b", "3.12:1"), ("c", "3.12:2"), ("new", "3.12:1"))
    assert changed_functions(before, now) == ["a"]
    of_one_name = (("f", "3.12:1"), ("f", "3.12:2"))
    assert changed_functions(of_one_name[:1], of_one_name) == changed_functions(of_one_name, of_one_name[1:]) == []
    assert changed_functions(of_one_name, (("f", "3.12:2"), ("f", "3.12:3"))) == ["f"]
    assert changed_functions((), now) == []
