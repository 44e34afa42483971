"""The tables of a file, as its statements make them, in Spark's batch and as streams."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StringType, StructField, StructType, VarcharType

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of
from dagster_ckpt.runtime.spark.session import open_session
from tests.spark.input_files import drop
from tests.sql_tests.changing_rows import EPOCHS, changing
from tests.sql_tests.files import SqlFiles

_MOST_ROWS = 300
_OF_THOUSANDS = 60
"""Rows that are read of the large tables of Spark's tests."""
_CREATE_VIEW = re.compile(
    r"create\s+(or\s+replace\s+)?(temp(orary)?\s+)?view\s+(if\s+not\s+exists\s+)?(?P<name>[\w.`]+)", re.IGNORECASE
)
_CHANGE_TABLE = re.compile(
    r"(create\s+(or\s+replace\s+)?table\s+(if\s+not\s+exists\s+)?|insert\s+(into|overwrite)\s+(table\s+)?|update\s+"
    r"|delete\s+from\s+|alter\s+table\s+)(default\.)?(?P<name>[\w.`]+)",
    re.IGNORECASE,
)
_DROP = re.compile(r"drop\s+(table|view)\s+(if\s+exists\s+)?(?P<name>[\w.`]+)", re.IGNORECASE)
_FOR_ALL = re.compile(
    r"set\b|create\s+(or\s+replace\s+)?(temp(orary)?\s+)?function|drop\s+(temp(orary)?\s+)?function|declare",
    re.IGNORECASE,
)
"""What a session keeps for itself."""
_IN_NO_FILE = re.compile("interval|variant|time\\(|void")
"""Types that a Parquet file cannot hold."""
_ONEK = (
    "unique1 INT, unique2 INT, two INT, four INT, ten INT, twenty INT, hundred INT, thousand INT, twothousand INT, "
    "fivethous INT, tenthous INT, odd INT, even INT, stringu1 STRING, stringu2 STRING, string4 STRING"
)
_KNOWN = {
    "testdata": "SELECT CAST(id AS INT) AS key, CAST(id AS STRING) AS value FROM range(1, 101)",
    "arraydata": "SELECT * FROM VALUES (array(1, 2, 3), array(array(1, 2, 3))), (array(2, 3, 4), array(array(2, 3, 4)))"
    " AS rows(arraycol, nestedarraycol)",
    "aggtest": "SELECT CAST(a AS INT) AS a, CAST(b AS FLOAT) AS b FROM VALUES (56, 7.8), (100, 99.097), (0, 0.09561), "
    "(42, 324.78) AS rows(a, b)",
}
"""The tables that Spark's tests have beside those of a file."""


class Tables:
    """The tables in sessions of three kinds.

    In `written` the statements run as they are. In `streams` each table is a stream, and in the sessions of `behind` it
    has the rows of the stream's table behind each epoch. `root` gets the files of the streams.
    """

    def __init__(self, spark: SparkSession, root: Path, settings: Mapping[str, str]) -> None:
        self._root = root
        self.written, self.streams = spark.newSession(), open_session(spark)
        self.behind = [spark.newSession() for _ in range(EPOCHS)]
        self._stale: set[str] = set()
        for session in self._all():
            for name, value in settings.items():
                session.conf.set(name, value)

    def add_known(self, files: SqlFiles, text: str) -> None:
        """Add the tables that Spark's tests have beside those of a file, if this text names them."""
        for name, query in _KNOWN.items():
            if name in text:
                self.written.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
                self._stale.add(name)
        for name, file in (("onek", "onek"), ("tenk1", "tenk")):
            if name in text:
                lines = files.data(f"postgresql/{file}.data").splitlines()[:_OF_THOUSANDS]
                values = [line.split("\t") for line in lines]
                names = [each.split() for each in _ONEK.split(", ")]
                rows = self.written.createDataFrame(values, ", ".join(f"{name} STRING" for name, _ in names))
                typed = rows.selectExpr(*(f"CAST({name} AS {type_}) AS {name}" for name, type_ in names))
                typed.coalesce(1).createOrReplaceTempView(name)
                self._stale.add(name)

    def run(self, statement: str) -> None:
        """Run a statement that is no query. One that Spark refuses changes nothing."""
        with suppress(PySparkException):
            self.written.sql(statement)
            self._follow(statement)

    def refresh(self) -> None:
        """Give the tables that have other rows now streams of these."""
        for name in sorted(self._stale):
            with suppress(PySparkException):  # a table that was dropped with its database, or never there
                self._stream(name)
        self._stale.clear()

    def _all(self) -> list[SparkSession]:
        return [self.written, self.streams, *self.behind]

    def _follow(self, statement: str) -> None:
        if found := _CREATE_VIEW.match(statement):
            self._follow_view(found["name"].replace("`", ""), statement[found.end() :])
        elif found := _CHANGE_TABLE.match(statement):
            self._stale.add(found["name"].replace("`", "").lower())
        elif found := _DROP.match(statement):
            self._stale.discard(found["name"].lower())
            for session in self._all()[1:]:
                session.catalog.dropTempView(found["name"])
        elif _FOR_ALL.match(statement):
            for session in self._all()[1:]:
                with suppress(PySparkException):  # a function that is there: the catalog has it for all sessions
                    session.sql(statement)

    def _follow_view(self, name: str, definition: str) -> None:
        """A view of streams is one in each session, and any other one is a table of the rows that it has."""
        self.refresh()
        create = f"CREATE OR REPLACE TEMPORARY VIEW `{name}` {definition}"
        with suppress(PySparkException):
            self.streams.sql(create)
            if self.streams.table(name).isStreaming:
                for session in self.behind:
                    session.sql(create)
                return
        self._stale.add(name)

    def _stream(self, name: str) -> None:
        frame = self.written.table(name)
        columns = [_as_of_file(field) for field in frame.schema]
        frame = frame.selectExpr(*columns).limit(_MOST_ROWS)
        schema = StructType([StructField(field.name, _nullable(field.dataType)) for field in frame.schema])
        rows = changing(frame.toArrow())
        folder = self._root / f"{name}-{len(list(self._root.glob('*')))}"
        folder.mkdir(parents=True)
        for epoch, changes in enumerate(rows.changes):
            drop(folder, epoch, changes)
        read = StructType([*schema.fields, StructField(CHANGE_TYPE, StringType())])
        source = self.streams.readStream.schema(read).option("maxFilesPerTrigger", 1).parquet(str(folder))
        upstream = Upstream(name, rows.key, changes=True)
        dataframe_of(Stream(source, upstream=upstream), self.streams).createOrReplaceTempView(name)
        for session, state in zip(self.behind, rows.states, strict=True):
            session.createDataFrame(state, schema).createOrReplaceTempView(name)


def _as_of_file(field: StructField) -> str:
    """The column with a type that a Parquet file can hold."""
    kind = field.dataType.simpleString()
    if not _IN_NO_FILE.search(kind):
        return f"`{field.name}`"
    return f"CAST(`{field.name}` AS {'INT' if kind == 'void' else 'STRING'}) AS `{field.name}`"


def _nullable(kind: DataType) -> DataType:
    """The type as a file gives it: anything may be null, and a text has any length."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _nullable(each.dataType)) for each in kind])
    return StringType() if isinstance(kind, CharType | VarcharType) else kind
