"""A destination in memory: a transactional table, far away, where replies get lost and commits arrive late.

What it promises is what `dagster_ckpt.delivery.destination` asks for, and no more. A session takes a fence: no session
opened before can commit any more. A transaction changes rows and position at once, if the position is still the one
that it builds on. When it arrives, and whether its caller hears of it, is another matter.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self, TypeVar

import pyarrow as pa

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    DestinationUnavailableError,
    PositionMovedError,
    Transaction,
    upserted,
)
from dagster_ckpt.errors import InvalidPipelineError
from tests.simulation.scheduler import Process, Strand
from tests.simulation.store import Request, SimulatedStore, Weather

T = TypeVar("T")

TABLE = "shop/delays"
LATER_MS = 60_000

DatabaseRow = tuple[object, ...]


@dataclass(frozen=True)
class Contents:
    """All that the database holds. A backup is one of these, and a commit makes another."""

    rows: tuple[DatabaseRow, ...] = ()
    positions: Mapping[str, str] = field(default_factory=dict)

    def changed(self, table: DeliveredTable, transaction: Transaction, rows: Sequence[pa.RecordBatch]) -> "Contents":
        """After these rows of the transaction; the positions are as before."""
        before = () if transaction.replaces else self.rows
        if table.mode is DeliveryMode.APPEND:
            return Contents((*before, *_tuples(rows)), self.positions)
        by_key = {row[0]: row for row in before}
        by_key |= {row[0]: row for row in _tuples(list(map(upserted, rows)))}
        return Contents(tuple(by_key.values()), self.positions)

    def at(self, delivery: str, position: str) -> "Contents":
        return Contents(self.rows, {**self.positions, delivery: position})


@dataclass(frozen=True)
class Hold:
    """What a session has of the database: the fence that it took, and the connection that it took it by."""

    fence: int
    connection: int


@dataclass
class Database:
    """The honest table. `on_commit` sees each commit the moment it happens: whose, after which position, and whether it
    replaced the table.

    A restore, or a DROP TABLE, breaks all connections: `connection` is the number of times. `mended` is how often
    users have restored older contents since the delivery began, `is_emptied` whether the table is still dropped.
    """

    on_commit: Callable[[str, str | None, bool], None]
    contents: Contents = field(default_factory=Contents)
    backups: list[Contents] = field(default_factory=list)
    fences: Counter[str] = field(default_factory=Counter)
    connection: int = 0
    mended: int = 0
    is_emptied: bool = False

    def opened(self, delivery: str) -> tuple[Hold, str | None] | None:
        """Take the fence, then read the position; None where a delivery without one finds rows of others."""
        position = self.contents.positions.get(delivery)
        if position is None and self.contents.rows:
            return None
        self.fences[delivery] += 1
        return Hold(self.fences[delivery], self.connection), position

    def is_held(self, delivery: str, hold: Hold) -> bool:
        return hold.connection == self.connection and hold.fence == self.fences[delivery]

    def commit(self, delivery: str, contents: Contents, *, replaces: bool) -> None:
        before, self.contents = self.contents, contents
        self.on_commit(delivery, before.positions.get(delivery), replaces)
        self.is_emptied = False

    # ---- what users do to it

    def back_up(self) -> None:
        self.backups.append(self.contents)

    def restore(self, contents: Contents) -> None:
        self.contents = contents
        self.connection += 1
        self.mended += 1
        self.is_emptied = not contents.positions

    def empty(self) -> None:
        """Drop the table and the positions."""
        self.restore(Contents())

    def begin_again(self) -> None:
        """Empty it, for a delivery that starts over."""
        self.empty()
        self.backups, self.mended, self.is_emptied = [], 0, False


@dataclass(frozen=True)
class Line:
    """What all processes' connections to the database share.

    Probabilities: `echo`, that a commit is sent twice; `death`, that a process dies as its commit arrives, before the
    reply; `long`, that the transaction of a whole table takes one of `longs_ms`.
    """

    database: Database
    weather: Weather
    chance: Random
    echo: float
    death: float
    long: float
    longs_ms: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedDestination:
    """The database as one simulated process sees it: a `Destination`."""

    process: Process
    line: Line
    kind = "simulated"
    address = f"memory://{TABLE}"
    table_name = TABLE

    def check_mode(self, mode: DeliveryMode) -> None:
        """Both modes are supported."""

    def check(self, table: DeliveredTable) -> None:
        """It holds every type."""

    def open(self, delivery: str, table: DeliveredTable) -> "SimulatedSession":
        return SimulatedSession(self, delivery, table)

    def request(self, verb: str, happen: Callable[[Strand], T]) -> T:
        """Run it at the database, and wait for the reply."""
        try:
            return SimulatedStore(self.process, self.line.weather).request(verb, TABLE, happen, changes=True)
        except DestinationUnavailableError:
            raise
        except Exception as error:
            raise DestinationUnavailableError(f"the database did not answer: {error}") from error


class SimulatedSession:
    """A connection that holds the newest fence of its delivery, until another takes one."""

    def __init__(self, to: SimulatedDestination, delivery: str, table: DeliveredTable) -> None:
        self.to, self.delivery, self.table = to, delivery, table
        self.database = to.line.database
        opened = to.request("open", lambda _: self.database.opened(delivery))
        if opened is None:
            raise InvalidPipelineError(f"a delivery begins with an empty table: empty it. table={TABLE}")
        self.hold, self.position = opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The database does not hear of it."""

    def apply(self, transaction: Transaction) -> None:
        self._take_long(transaction)
        rows = list(transaction.rows)
        self._take_long(transaction)
        if not self.to.request("commit", lambda who: self.committed(transaction, rows, who)):
            raise PositionMovedError(f"another delivery writes here. delivery={self.delivery}")

    def committed(self, transaction: Transaction, rows: Sequence[pa.RecordBatch], who: Strand) -> bool:
        """What happens when the COMMIT arrives: all of it, or nothing."""
        if self.hold.connection != self.database.connection:
            raise DestinationUnavailableError("the connection is broken: connect again")
        if not self.may_commit(transaction):
            return False
        after = self.database.contents.changed(self.table, transaction, rows)
        after = after.at(self.delivery, transaction.until)
        self.database.commit(self.delivery, after, replaces=transaction.replaces)
        self._go_wrong_after(transaction, rows, who)
        return True

    def _take_long(self, transaction: Transaction) -> None:
        """A whole table is much to write: meanwhile leases lapse, and epochs are retired."""
        line, is_whole = self.to.line, transaction.after is None or transaction.replaces
        if is_whole and not line.weather.calm and line.chance.random() < line.long:
            line.weather.scheduler.this().sleep(line.chance.choice(line.longs_ms))

    def may_commit(self, transaction: Transaction) -> bool:
        """Whether it has the newest fence, and the position is the one that the transaction builds on."""
        position = self.database.contents.positions.get(self.delivery)
        return self.database.is_held(self.delivery, self.hold) and position == transaction.after

    def _go_wrong_after(self, transaction: Transaction, rows: Sequence[pa.RecordBatch], who: Strand) -> None:
        line = self.to.line
        if line.weather.calm:
            return
        if line.chance.random() < line.death:
            who.process.end()
        if line.chance.random() < line.echo:
            again = Request(line.weather, who, "commit", TABLE, lambda _: self.committed(transaction, rows, who))
            line.weather.late.append(again)
            line.weather.scheduler.after(line.chance.randrange(LATER_MS), lambda: line.weather.land(again))


def _tuples(batches: Sequence[pa.RecordBatch]) -> Iterator[DatabaseRow]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
