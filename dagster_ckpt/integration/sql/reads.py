"""The tables that a query reads, found without Spark. Names of its own, as of WITH, are none of them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError

from dagster_ckpt.integration.sql.early_refusals import refuse_early
from dagster_ckpt.integration.sql.properties import PREFIX, READS
from dagster_ckpt.integration.sql.sql_file import DIALECT, FileLine, SqlFile, split_statements
from dagster_ckpt.integration.sql.statements import Query

_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_VALUES = (TokenType.STRING, TokenType.NUMBER)
_NAMES_AFTER = ("FROM", "JOIN", ",", "(")
_SOURCE_INSTEAD = (
    "declare it, and read it by its name: CREATE TEMPORARY VIEW name (columns) USING parquet OPTIONS (path '...')"
)
_WINDOW_FUNCTION = "windo_"
_FORMATS = {"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text", "xml"}


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a query reads: the parts of its name, and where STREAM is in the query's text, if it is."""

    parts: tuple[str, ...]
    stream: tuple[int, int] | None
    place: FileLine

    @property
    def name(self) -> str:
        return ".".join(self.parts)


def find_reads(query: Query, views: Collection[str] = ()) -> list[TableRead]:
    """The tables that the query reads, in the order of its text. `views` are the names of other queries, in lower case.

    Raises `InvalidPipelineError` for a text that is no query, for files and functions in place of a table, and for what
    its text alone shows that cannot be kept up to date.
    """
    text, streamed = _plain(query)
    try:
        tree = sqlglot.parse_one(text, read=DIALECT)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = str(first.get("highlight") or first.get("start_context") or "")
        raise _not_understood(query, int(first.get("line") or 1), near) from error
    if not isinstance(tree, exp.Query | exp.Values):
        raise _not_understood(query, 1, text.split(maxsplit=1)[0])
    found: dict[int, TableRead] = {}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            _check_function(query, table)
            continue
        if not _is_own_name(table):
            start = int(table.parts[0].meta.get("start", 0))
            parts = tuple(part.name for part in table.parts)
            found[start] = TableRead(parts, streamed.get(start), query.place(start))
    refuse_early(query, tree, _is_own_name, views)
    reads = [found[start] for start in sorted(found)]
    for read in reads:
        if len(read.parts) == 2 and read.parts[0].lower() in _FORMATS:
            raise read.place.error(f"files are a source: {_SOURCE_INSTEAD}.", found=read.name)
    return reads


def _not_understood(query: Query, line: int, near: str) -> Exception:
    return query.place_of_line(line).error(
        "this cannot be read as a query. If Spark can, name the tables that it reads: "
        f"TBLPROPERTIES ('{PREFIX}{READS}' = 'orders, customers').",
        near=near,
    )


def _is_own_name(table: exp.Table) -> bool:
    """Whether the name is one of a WITH around the table, which sees the queries before it, or itself if recursive."""
    if len(table.parts) > 1:
        return False
    name = table.name.casefold()
    node: exp.Expr | None = table.parent
    within: exp.Expr = table
    while node is not None:
        for each in node.args.values():
            if isinstance(each, exp.With) and each is not within and name in _names(each.expressions):
                return True
        if isinstance(node, exp.With):
            before = node.expressions[: _number(node.expressions, within)]
            if name in _names(node.expressions if node.recursive else before):
                return True
        within, node = node, node.parent
    return False


def _names(queries: Iterable[exp.Expr]) -> set[str]:
    return {each.alias.casefold() for each in queries}


def _number(expressions: Sequence[exp.Expr], wanted: exp.Expr) -> int:
    return next(number for number, each in enumerate(expressions) if each is wanted)


def _check_function(query: Query, table: exp.Table) -> None:
    """Functions such as range and explode make rows of their own; those that read files or names are refused."""
    name = table.this.name.lower() if isinstance(table.this, exp.Anonymous) else ""
    if name == "identifier":
        raise query.place().error(
            "write the table's name as it is: Dagster's graph cannot show one that is computed.", found="IDENTIFIER"
        )
    if name in {"read_files", "cloud_files", "read_kafka", "read_kinesis", "read_pubsub"}:
        raise query.place().error(f"what is read from outside is a source: {_SOURCE_INSTEAD}.", found=name)


def _plain(query: Query) -> tuple[str, dict[int, tuple[int, int]]]:
    """The text of the query without STREAM and WATERMARK, with blanks in their place; and where STREAM was.

    The latter for each name that it was for, by the offset of its first character. The function `window` has another
    name of the same length: directly after GROUP BY sqlglot takes it for the clause WINDOW.
    """
    text = query.text
    tokens = [token for statement in split_statements(SqlFile(query.file.name, text)) for token in statement.tokens]
    blank: list[tuple[int, int]] = []
    streamed: dict[int, tuple[int, int]] = {}
    for number, token in enumerate(tokens):
        if _is_stream(tokens, number):
            following = tokens[number + 1 :]
            name = following[1] if following[0].token_type is TokenType.L_PAREN else following[0]
            streamed[name.start] = (token.start, token.end + 1)
            blank.append(streamed[name.start])
        if token.text.upper() == "WATERMARK":
            end = _end_of_watermark(tokens, number)
            if end is not None:
                blank.append((token.start, tokens[end].end + 1))
    for number, token in enumerate(tokens):
        if _is_window_function(tokens, number):
            text = text[: token.start] + _WINDOW_FUNCTION + text[token.end + 1 :]
    return blank_out(text, blank), streamed


def blank_out(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with blanks in place of these parts, so that all else stays in its line and column."""
    for start, end in spans:
        text = text[:start] + "".join("\n" if sign == "\n" else " " for sign in text[start:end]) + text[end:]
    return text


def _is_stream(tokens: Sequence[Token], number: int) -> bool:
    """Whether the token is STREAM in front of the name of a table, and not a name itself."""
    if number == 0 or number + 1 >= len(tokens) or tokens[number].text.upper() != "STREAM":
        return False
    before, after = tokens[number - 1].text.upper(), tokens[number + 1]
    is_name = after.token_type is TokenType.IDENTIFIER or after.text.replace("_", "a").isalnum()
    return before in _NAMES_AFTER and (after.token_type is TokenType.L_PAREN or (is_name and not _ends(after)))


def _is_window_function(tokens: Sequence[Token], number: int) -> bool:
    """Whether the token is the name of the function `window`: in the clause WINDOW a name follows, and no bracket."""
    after = tokens[number + 1 : number + 2]
    return tokens[number].text.upper() == "WINDOW" and [each.token_type for each in after] == [TokenType.L_PAREN]


def _ends(token: Token) -> bool:
    """Whether the word follows a table, so that STREAM in front of it is the table's name."""
    words = ("WHERE", "GROUP", "ORDER", "HAVING", "JOIN", "ON", "USING", "AS", "UNION", "LIMIT", "LEFT", "RIGHT")
    return token.token_type is not TokenType.IDENTIFIER and token.text.upper().split()[0] in words


def _end_of_watermark(tokens: Sequence[Token], number: int) -> int | None:
    """The last token of `WATERMARK expression DELAY OF interval`; None if this is not one."""
    words = [token.text.upper() for token in tokens]
    delay = next((at for at in range(number, len(words) - 3) if words[at : at + 2] == ["DELAY", "OF"]), None)
    if delay is None or words[delay + 2] != "INTERVAL":
        return None
    return max(_interval(tokens, delay + 2))


def _interval(tokens: Sequence[Token], at: int) -> Iterator[int]:
    """The tokens of an interval: `INTERVAL 1 HOUR 30 MINUTES`, `INTERVAL '10 minutes'`."""
    yield at
    for number in range(at + 1, len(tokens)):
        is_unit = tokens[number].text.upper().removesuffix("S") in _UNITS
        if not (is_unit or tokens[number].token_type in _VALUES or tokens[number].text.upper() == "TO"):
            return
        yield number
