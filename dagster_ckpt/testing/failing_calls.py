"""A destination whose process dies, loses a reply or is overtaken at one of its calls, for tests.

Calls are numbered from 0, when they begin. Those of the protocol are `open`, `apply` and `rows`, one for each batch
pulled; below them are the destination's calls to the outside, which the test names: methods of a driver.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, Self
from unittest.mock import patch

import pyarrow as pa

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, Destination, Session, Transaction

PROTOCOL = ("open", "apply", "rows")


class KilledError(BaseException):
    """The death of a process. A BaseException, so that no handler of errors catches it."""


@dataclass
class Calls:
    """The calls of one process, of which one fails.

    `at` is the number of that call, None for no failure. It fails before it takes effect, or `after` that. `fail` then
    runs: if it returns, the process goes on. Without `fail` the process dies: no later call takes effect, whatever the
    destination's clean-up attempts.
    """

    at: int | None = None
    after: bool = False
    fail: Callable[[], None] | None = None
    names: list[str] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    """The positions of transactions that were reported as committed."""
    failed: bool = False
    dead: bool = False
    _in_fail: bool = False

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """The body is the call."""
        if self._in_fail:  # called by another process, while this one is suspended
            yield
            return
        if self.dead:
            raise KilledError
        number = len(self.names)
        self.names.append(name)
        if number == self.at and not self.after:
            self._fail()
        yield
        if number == self.at and self.after:
            self._fail()

    def through(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with each use counted as a call."""

        def call_through(*arguments: Any, **options: Any) -> Any:
            with self.call(name):
                return function(*arguments, **options)

        return call_through

    def _fail(self) -> None:
        self.failed = True
        if self.fail is None:
            self.dead = True
            raise KilledError
        self._in_fail = True
        try:
            self.fail()
        finally:
            self._in_fail = False


def kill_this_process() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def outside_through(calls: Calls, outside: Sequence[str]) -> Iterator[None]:
    """Count the calls to the outside too.

    Names are `module:Class.method` or `module:function`. A method of a class that is not written in Python cannot be
    replaced: name it by the call that makes the object, `sqlite3:connect().execute`.
    """
    with ExitStack() as replaced:
        for place in outside:
            maker, _, method = place.partition("().")
            name = place.rpartition(":")[2]
            wrap = partial(_count_calls, calls, name, method) if method else partial(calls.through, name)
            _replace(replaced, maker, wrap)
        yield


def _replace(replaced: ExitStack, place: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module, _, path = place.partition(":")
    holder, _, name = path.rpartition(".")
    owner = resolve_name(f"{module}:{holder}")
    static = isinstance(vars(owner).get(name), staticmethod | classmethod)
    function = wrap(getattr(owner, name))
    replaced.enter_context(patch.object(owner, name, staticmethod(function) if static else function))


def _count_calls(calls: Calls, name: str, method: str, make: Callable[..., Any]) -> Callable[..., Any]:
    def make_counted(*arguments: Any, **options: Any) -> Any:
        return _Made(make(*arguments, **options), method, partial(calls.through, name))

    return make_counted


class _Made:
    """An object with one method that is replaced."""

    def __init__(self, inner: Any, method: str, wrap: Callable[[Any], Any]) -> None:
        self._inner, self._method, self._wrap = inner, method, wrap

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._wrap(found) if name == self._method else found


@dataclass(frozen=True)
class FailingDestination:
    """A destination with the protocol's own calls counted."""

    inner: Destination
    calls: Calls

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def table_name(self) -> str | None:
        return self.inner.table_name

    def check_mode(self, mode: DeliveryMode) -> None:
        self.inner.check_mode(mode)

    def check(self, table: DeliveredTable) -> None:
        self.inner.check(table)

    def open(self, delivery: str, table: DeliveredTable) -> "FailingSession":
        with ExitStack() as opened:
            with self.calls.call("open"):
                session = opened.enter_context(self.inner.open(delivery, table))
            opened.pop_all()
        return FailingSession(session, self.calls)


class FailingSession:
    """A session of it. Leaving it closes the connection, as the operating system does when a process dies."""

    def __init__(self, inner: Session, calls: Calls) -> None:
        self._inner, self._calls = inner, calls
        self.position = inner.position

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)  # type: ignore[arg-type]

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`."""
        with self._calls.call("apply"):
            self._inner.apply(replace(transaction, rows=self._pull(transaction.rows)))
            self._calls.positions.append(transaction.until)

    def _pull(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        end = object()
        while (batch := self._calls.through("rows", next)(rows, end)) is not end:
            yield batch
