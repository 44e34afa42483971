"""The tokens of a statement, read one after another."""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from dagster_ckpt.integration.sql.sql_file import FileLine, Statement

_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)
_NO_NAMES = (*_TEXTS, TokenType.NUMBER)


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
