"""What each statement of a file declares: a table, a view or a source.

    CREATE STREAMING TABLE name [(columns)] [COMMENT '...'] [TBLPROPERTIES (...)] AS query
    CREATE MATERIALIZED VIEW name [(columns, PRIMARY KEY (names))] [COMMENT '...'] [TBLPROPERTIES (...)] AS query
    CREATE TEMPORARY VIEW name [COMMENT '...'] AS query
    CREATE TEMPORARY VIEW name [(columns)] USING format [OPTIONS (...)]
    query                                               (the only one of its file, which names the view)

A query is not parsed here: it goes to Spark as it is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import Token, TokenType

from dagster_ckpt.integration.sql.properties import Property
from dagster_ckpt.integration.sql.sql_file import FileLine, SqlFile, Statement, split_statements

_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)
_NO_NAMES = (*_TEXTS, TokenType.NUMBER)

_QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_REFUSED_CLAUSES = {
    "PARTITIONED BY": "the table is in the store, by hash of its key: leave PARTITIONED BY out",
    "CLUSTER BY": "the table is in the store, by hash of its key: leave CLUSTER BY out",
    "CLUSTERED BY": "the table is in the store, by hash of its key: leave CLUSTERED BY out",
    "USING": "the table is in the store of the checkpoints: leave USING out, and deliver it to have it elsewhere too",
    "LOCATION": "the table is in the store of the checkpoints: leave LOCATION out",
    "OPTIONS": "the table has no format: give options of the asset by TBLPROPERTIES",
    "SCHEDULE": "Dagster schedules and watches assets: leave SCHEDULE out, or keep the stream running by "
    "TBLPROPERTIES ('dagster_ckpt.mode' = 'continuous')",
    "TRIGGER": "Dagster schedules and watches assets: leave TRIGGER out",
}
_REFUSED_STATEMENTS = {
    "CREATE FLOW": "several queries into one table are one with UNION ALL: CREATE STREAMING TABLE name AS SELECT ... "
    "UNION ALL SELECT ...",
    "CREATE VIEW": "a view that is no asset is written CREATE TEMPORARY VIEW; one that is, CREATE MATERIALIZED VIEW",
    "CREATE TABLE": "write CREATE STREAMING TABLE for rows that only come, or CREATE MATERIALIZED VIEW for a table as "
    "it is now",
    "SET": "settings of Spark are in its resource, as in LazyPySparkResource(spark_config={...})",
    "USE": "write names of Spark's catalog in full: catalog.schema.table",
}


class Cursor:
    """The place within a statement up to which it was read."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._next = 0

    @property
    def rest(self) -> tuple[Token, ...]:
        return self.statement.tokens[self._next :]

    @property
    def place(self) -> FileLine:
        """That of the next token, or of the last one."""
        tokens = self.rest or self.statement.tokens[-1:]
        return self.statement.file.place(tokens[0].start)

    @property
    def next_text(self) -> str:
        """The next token as it is written."""
        return self._text(self.rest[0]) if self.rest else "the end of the statement"

    def sees(self, *words: str) -> bool:
        """Whether these keywords or signs are next."""
        return self._tokens_for(words) is not None

    def accept(self, *words: str) -> bool:
        """Read these if they are next."""
        count = self._tokens_for(words)
        self._next += count or 0
        return count is not None

    def _tokens_for(self, words: Sequence[str]) -> int | None:
        """The number of tokens that spell these words; None: other words are next. sqlglot may read several as one."""
        there: list[str] = []
        for count, token in enumerate(self.rest, start=1):
            there += self._text(token).upper().split()
            if len(there) >= len(words):
                return count if there == list(words) else None
        return None

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.place.error(f"expected {' '.join(words)}.", found=self.next_text)

    def name(self) -> tuple[str, ...]:
        """A name, with its qualifiers before it."""
        parts = [self._identifier()]
        while self.accept("."):
            parts.append(self._identifier())
        return tuple(parts)

    def text(self) -> str:
        """A text in quotes. Two quotes within it are one."""
        if not self.rest or self.rest[0].token_type not in _TEXTS:
            raise self.place.error("expected a text in quotes.", found=self.next_text)
        token = self._step()
        value = token.text
        while self.rest and self.rest[0].token_type in _TEXTS and self.rest[0].start == token.end + 1:
            token = self._step()
            value += self.statement.file.text[token.start] + token.text
        return value

    def value(self) -> str:
        """A text, a number or a word such as true, as a text."""
        if self.rest and self.rest[0].token_type in _TEXTS:
            return self.text()
        sign = "-" if self.accept("-") else ""
        if not self.rest or self.sees(")") or self.sees(","):
            raise self.place.error("expected a value.", found=self.next_text)
        return sign + self._step().text

    def until(self, *ends: str) -> str:
        """The text up to the next of these keywords or signs that is outside of parentheses and brackets."""
        first, depth = self.rest[0] if self.rest else None, 0
        last = None
        while self.rest and not (depth == 0 and any(self.sees(end) for end in ends)):
            depth += {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2}.get(self._text(self.rest[0]), 0)
            last = self._step()
        return "" if first is None or last is None else self.statement.file.text[first.start : last.end + 1]

    def items(self) -> bool:
        """Whether another item of a list in parentheses follows: call it after the `(` and after each item."""
        if self.accept(")"):
            return False
        if not self._comes_after("("):
            self.expect(",")
        return True

    def _comes_after(self, sign: str) -> bool:
        return self._next > 0 and self._text(self.statement.tokens[self._next - 1]) == sign

    def _identifier(self) -> str:
        token = self.rest[0] if self.rest else None
        written = "" if token is None else self._text(token)
        is_word = written[:1] == "`" or written.replace("_", "a").isalnum()
        if token is None or token.token_type in _NO_NAMES or not is_word:
            raise self.place.error("expected a name.", found=self.next_text)
        return self._step().text

    def _step(self) -> Token:
        token = self.rest[0]
        self._next += 1
        return token

    def _text(self, token: Token) -> str:
        return self.statement.file.text[token.start : token.end + 1]


class StatementKind(StrEnum):
    """The kinds of tables, as their statements are written."""

    STREAMING_TABLE = "STREAMING TABLE"
    MATERIALIZED_VIEW = "MATERIALIZED VIEW"


@dataclass(frozen=True, slots=True)
class Query:
    """The text of a query, and where it begins in its file."""

    file: SqlFile
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.file.text[self.start : self.end]

    def place(self, offset: int = 0) -> FileLine:
        """The line of the file for an offset in the text."""
        return self.file.place(self.start + offset)

    def place_of_line(self, line: int) -> FileLine:
        """The line of the file for a line of the text, from 1."""
        return FileLine(self.file.name, self.place().line + line - 1)


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table: its type as written, and what it means, or None."""

    name: str
    type: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that becomes an asset."""

    name: str
    kind: StatementKind
    columns: tuple[SqlColumn, ...]
    comment: str | None
    properties: tuple[Property, ...]
    query: Query
    place: FileLine
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlView:
    """A query with a name, which other queries use. It is no asset."""

    name: str
    query: Query
    place: FileLine


@dataclass(frozen=True, slots=True)
class SqlSourceView:
    """What Spark reads by a format. `schema` is as written."""

    name: str
    format: str
    schema: str | None
    options: Mapping[str, str]
    place: FileLine


Declared = SqlTable | SqlView | SqlSourceView


def declarations(file: SqlFile) -> list[Declared]:
    """What the statements of a file declare. Raises `InvalidPipelineError`, with the line."""
    statements = list(split_statements(file))
    return [_declaration(statement, alone=len(statements) == 1) for statement in statements]


def _declaration(statement: Statement, *, alone: bool) -> Declared:
    cursor = Cursor(statement)
    if any(cursor.sees(word) for word in _QUERY):
        return _table_of_file(cursor, alone=alone)
    if cursor.accept("CREATE"):
        replaces = cursor.accept("OR", "REPLACE") or cursor.accept("OR", "REFRESH")
        for kind in StatementKind:
            if cursor.accept(*kind.split()):
                return _table(cursor, kind)
        if not replaces or statement.tokens[2].text.upper() == "REPLACE":
            cursor.accept("GLOBAL")
            if cursor.accept("TEMPORARY", "VIEW") or cursor.accept("TEMP", "VIEW"):
                return _view(cursor)
    written = " ".join(token.text.upper() for token in statement.tokens[:2])
    instead = next((text for begin, text in _REFUSED_STATEMENTS.items() if written.startswith(begin)), None)
    raise statement.place.error(
        (instead or "a statement is CREATE STREAMING TABLE, CREATE MATERIALIZED VIEW or CREATE TEMPORARY VIEW") + ".",
        found=written,
    )


def _table_of_file(cursor: Cursor, *, alone: bool) -> SqlTable:
    file = cursor.statement.file
    if not alone or file.path is None:
        raise cursor.place.error(
            "a query is named by its file if it is the file's only statement: write CREATE MATERIALIZED VIEW name AS "
            "before it.",
            found=cursor.next_text,
        )
    return SqlTable(
        file.path.stem, StatementKind.MATERIALIZED_VIEW, (), None, (), _query(cursor), cursor.statement.place
    )


def _table(cursor: Cursor, kind: StatementKind) -> SqlTable:
    cursor.accept("IF", "NOT", "EXISTS")
    name, (columns, primary_key) = _name(cursor), _columns(cursor)
    comment: str | None = None
    properties: tuple[Property, ...] = ()
    while not cursor.accept("AS"):
        if cursor.accept("COMMENT"):
            comment = cursor.text()
        elif cursor.accept("TBLPROPERTIES"):
            properties = (*properties, *_properties(cursor))
        else:
            raise _no_clause(cursor, kind)
    place = cursor.statement.place
    return SqlTable(name, kind, columns, comment, properties, _query(cursor), place, primary_key)


def _no_clause(cursor: Cursor, kind: StatementKind) -> Exception:
    if not cursor.rest:
        return cursor.place.error(
            "a table is what its query gives: end the statement with AS and a query. What is written from elsewhere "
            "is a source: CREATE TEMPORARY VIEW name (columns) USING format OPTIONS (...).",
            kind=kind,
        )
    refused = _REFUSED_CLAUSES.get(cursor.next_text.upper())
    text = refused or "expected COMMENT, TBLPROPERTIES or AS"
    return cursor.place.error(f"{text}.", found=cursor.next_text)


def _view(cursor: Cursor) -> SqlView | SqlSourceView:
    cursor.accept("IF", "NOT", "EXISTS")
    name = _name(cursor)
    schema = None
    if cursor.accept("("):
        schema = cursor.until(")")
        cursor.expect(")")
    if cursor.accept("USING"):
        return _source(cursor, name, schema)
    if schema is not None:
        raise cursor.place.error(
            "a view has the columns of its query: name them there, or write USING format for a source.", view=name
        )
    if cursor.accept("COMMENT"):
        cursor.text()
    cursor.expect("AS")
    return SqlView(name, _query(cursor), cursor.statement.place)


def _source(cursor: Cursor, name: str, schema: str | None) -> SqlSourceView:
    format_ = ".".join(cursor.name())
    options: tuple[Property, ...] = ()
    if cursor.accept("OPTIONS"):
        options = _properties(cursor)
    if cursor.rest:
        raise cursor.place.error("a source ends with its OPTIONS (...).", found=cursor.next_text)
    values = {option.name: option.value for option in options}
    return SqlSourceView(name, format_, schema, values, cursor.statement.place)


def _name(cursor: Cursor) -> str:
    place, parts = cursor.place, cursor.name()
    if len(parts) > 1:
        raise place.error(
            "an asset is named by one word, and a prefix of its key is given to all by key_prefix=: leave the part "
            "before the dot out.",
            name=".".join(parts),
        )
    return parts[0]


def _columns(cursor: Cursor) -> tuple[tuple[SqlColumn, ...], tuple[str, ...]]:
    """The columns of a table, and those of its primary key."""
    columns: list[SqlColumn] = []
    primary_key: tuple[str, ...] = ()
    if not cursor.accept("("):
        return (), ()
    while cursor.items():
        place = cursor.place
        if cursor.accept("PRIMARY", "KEY"):
            if primary_key:
                raise place.error("a table has one primary key: name all its columns there.", found="PRIMARY KEY")
            primary_key = tuple(_names(cursor))
            continue
        if cursor.sees("CONSTRAINT") or cursor.sees("FOREIGN", "KEY"):
            raise place.error(
                "no constraint but PRIMARY KEY (columns) would be enforced: write an asset check, or a "
                "WHERE in the query.",
                found=cursor.next_text,
            )
        name = ".".join(cursor.name())
        type_ = cursor.until("NOT", "COMMENT", "DEFAULT", "GENERATED", ",", ")")
        comment = cursor.text() if cursor.accept("COMMENT") else None
        if not type_ or not (cursor.sees(",") or cursor.sees(")")):
            raise cursor.place.error(
                "a column has a name, a type and, if you like, a COMMENT: whatever else is for the query.",
                column=name,
                found=cursor.next_text,
            )
        columns.append(SqlColumn(name, type_, comment))
    names = [column.name.casefold() for column in columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise cursor.place.error("a column is there twice: rename one.", column=twice[0])
    return tuple(columns), primary_key


def _names(cursor: Cursor) -> list[str]:
    """The names of columns in parentheses."""
    names: list[str] = []
    cursor.expect("(")
    while cursor.items():
        names.append(".".join(cursor.name()))
    return names


def _properties(cursor: Cursor) -> tuple[Property, ...]:
    found: list[Property] = []
    cursor.expect("(")
    while cursor.items():
        place = cursor.place
        is_text = cursor.next_text[:1] in "'\"rR" and cursor.next_text[-1:] in "'\""
        name = cursor.text() if is_text else ".".join(cursor.name())
        cursor.accept("=")
        found.append(Property(name, cursor.value(), place))
    names: Sequence[str] = [each.name.casefold() for each in found]
    for number, each in enumerate(found):
        if names.index(each.name.casefold()) < number:
            raise each.place.error("this is given twice: leave one out.", name=each.name)
    return tuple(found)


def _query(cursor: Cursor) -> Query:
    if not any(cursor.sees(word) for word in _QUERY):
        raise cursor.place.error("expected a query, such as SELECT ... FROM ...", found=cursor.next_text)
    tokens = cursor.rest
    return Query(cursor.statement.file, tokens[0].start, tokens[-1].end + 1)
