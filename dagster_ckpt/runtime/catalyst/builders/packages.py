"""Spark's classes, each looked up once, and what the builders of expressions and plans ask of a session."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.planner import planner, sequence
from dagster_ckpt.runtime.catalyst.trees import each_of
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.spark.jvm import java_class, java_session

_SQL = "org.apache.spark.sql"


class Package:
    """A package of the JVM, whose classes are looked up once each."""

    def __init__(self, session: SparkSession, name: str) -> None:
        self._session, self._package = session, name

    def __getattr__(self, name: str) -> Any:
        found = java_class(self._session, f"{self._package}.{name}")
        setattr(self, name, found)
        return found

    def single(self, name: str) -> Any:
        """A `case object`, or the companion of a class."""
        held = f"${name}"
        if held not in vars(self):
            setattr(self, held, getattr(java_class(self._session, f"{self._package}.{name}$"), "MODULE$"))
        return vars(self)[held]


class Packages:
    """The packages of Catalyst in the JVM of a session, its parser and its settings."""

    def __init__(self, session: SparkSession) -> None:
        self.session, self.planner = session, planner(session)
        self.own: Any = java_session(session)
        self.state = self.own.sessionState()
        self.conf = self.state.conf()

        def package(name: str) -> Package:
            return Package(session, f"{_SQL}.{name}")

        self.expressions, self.logical = package("catalyst.expressions"), package("catalyst.plans.logical")
        self.planning, self.plans = package("catalyst.planning"), package("catalyst.plans")
        self.analysis, self.rules = package("catalyst.analysis"), package("catalyst.optimizer")
        self.aggregates, self.types = package("catalyst.expressions.aggregate"), package("types")
        self.schemas, self.rows = package("util"), package("catalyst.util")
        self.data_types = package("catalyst.types")
        self.some, self.none = java_class(session, "scala.Some"), java_class(session, "scala.Option").empty()
        self.nil = self.seq(())

    def seq(self, items: Iterable[Any]) -> Any:
        """A sequence of Scala's."""
        return sequence(self.planner, items)

    @staticmethod
    def resolve(session: Any, text: str) -> Java:
        state = session.sessionState()
        return state.analyzer().execute(state.sqlParser().parsePlan(text))

    def resolve_expression(self, sql: str) -> Java:
        """An expression without columns, with its functions resolved."""
        plan: Any = self.resolve(self.own, f"SELECT {sql}")
        [named] = each_of(plan.expressions())
        return named.child()

    def type(self, ddl: str) -> Any:
        """Catalyst's type, from Spark's DDL."""
        return self.state.sqlParser().parseDataType(ddl)

    def without_rows(self, session: Any, frame: Any, *, streams: bool) -> Any:
        """A DataFrame in the JVM, with the columns of another and without a row."""
        own: Any = self.session
        rows = own.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001  (Spark exposes it nowhere else)
        return session.internalCreateDataFrame(rows, frame.schema().asNullable(), streams)
