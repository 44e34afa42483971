"""No module but those of `runtime/catalyst` touches a plan of Spark's in the JVM, or names a class of Catalyst."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

import pytest

import dagster_ckpt
from dagster_ckpt.runtime.catalyst.values import Columns, Java

PACKAGE = Path(dagster_ckpt.__file__).parent
ROOM = "runtime/catalyst"
OF_PLANS = {
    "analyzed", "canonicalized", "containsPattern", "executedPlan", "exprId", "fastEquals", "logicalPlan", "nodeName",
    "optimizedPlan", "prettyName", "productPrefix", "queryExecution", "resolved", "sameResult", "semanticEquals",
    "sparkPlan", "toAttribute", "transformAllExpressions", "transformUp", "withNewChildren", "withNewChildrenInternal",
}  # fmt: skip
"""What only plans, their nodes and their expressions are asked, or what gives one."""
CLASSES = ("org.apache.spark.sql.catalyst", "org.apache.spark.sql.execution.QueryExecution", "sql.classic.Dataset")
NAMES_RULES = "runtime/spark/session.py"
"""A setting of Spark's has rules of the optimizer by their names."""


def offences(text: str) -> Iterator[str]:
    """What a module asks of plans, and the classes of Catalyst that it names."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr=name) if name in OF_PLANS:
                yield name
            case ast.Constant(value=str(named)) if any(each in named for each in CLASSES):
                yield named


def modules(*, of_room: bool) -> dict[str, str]:
    found = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    return {name: path.read_text() for name, path in found.items() if name.startswith(ROOM) is of_room}


def test_only_one_room_knows_them() -> None:
    found = {name: list(offences(text)) for name, text in modules(of_room=False).items() if name != NAMES_RULES}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("name", sorted(OF_PLANS - {"canonicalized", "optimizedPlan", "prettyName", "resolved"}))
def test_what_would_be_found_elsewhere(name: str) -> None:
    assert list(offences(f"plan.{name}()")) == [name]


def test_the_room_would_be_found() -> None:
    assert sum(any(offences(text)) for text in modules(of_room=True).values()) > 3


def test_what_lies_in_the_jvm_says_nothing() -> None:
    # To a type checker: of `Any` it would not ask whether there is such an attribute.
    for opaque in (Java, Columns):
        assert isinstance(opaque, NewType)
        assert opaque.__supertype__ is object
