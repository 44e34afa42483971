"""Simulated time, and the processes and threads that live in it: greenlets, of which only one moves at a time.

A strand (a thread of a process) runs until it waits. The scheduler then takes the earliest event of all: a strand goes
on, a request arrives at the store, something goes wrong. What happens at one time happens in the order in which it was
asked for, so a world is decided by its chance alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from greenlet import getcurrent, greenlet

MOVES_MAX = 100_000  # of one world: one that goes on for ever is a mistake


BEGINNING_MS = 1_700_000_000_000


class Killed(BaseException):
    """The process ends here and now."""


class Scheduler:
    """The clock of the world and the queue of what will happen."""

    def __init__(self) -> None:
        self.now_ms = BEGINNING_MS
        self.current: Strand | None = None
        self.hub = getcurrent()
        self.over = False
        self._moves = 0
        self._until: Callable[[], bool] = bool
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay_ms: int, happen: Callable[[], None]) -> None:
        heappush(self._queue, (self.now_ms + delay_ms, next(self._order), happen))

    def next(self, happen: Callable[[], None]) -> None:
        """The same without delay, said at the end of an event: at once, where nothing else was to happen before."""
        if self.is_due():
            self.after(0, happen)
        else:
            happen()

    def run(self, until: Callable[[], bool]) -> None:
        """Let everything happen in its order, until there is nothing more or `until` says so."""
        queue = self._queue
        self._moves, self._until = 0, until
        while queue and not until():
            assert self._moves < MOVES_MAX, "this world does not come to an end"
            self._moves += 1
            self.now_ms, _, happen = heappop(queue)
            happen()

    def leap(self, to_ms: int) -> bool:
        """Let that time come at once, if nothing at all happens until then, nor at that time."""
        queue = self._queue
        if (queue and queue[0][0] <= to_ms) or self._moves >= MOVES_MAX or self._until():
            return False
        self._moves += 1
        self.now_ms = to_ms
        return True

    def is_due(self) -> bool:
        """Whether anything more happens at this time."""
        return bool(self._queue) and self._queue[0][0] <= self.now_ms

    def this(self) -> "Strand":
        """The strand that moves."""
        assert self.current is not None, "only a strand may wait"
        return self.current


@dataclass
class Process:
    """What dies and is frozen as one. `rate` is how fast its clock goes; `host` says who can see whether it lives."""

    scheduler: Scheduler
    name: str
    number: int
    host: str = "elsewhere"
    rate: float = 1.0
    offset_ms: int = 0
    alive: bool = True
    frozen_until_ms: int = 0
    strands: list["Strand"] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)
    on_end: list[Callable[[], None]] = field(default_factory=list)

    def spawn(self, role: str, live: Callable[[], None]) -> "Strand":
        """A thread of it that begins now."""
        strand = Strand(self, role, live)
        self.strands = [other for other in self.strands if not other.over]
        self.strands.append(strand)
        strand.wake_after(0)
        return strand

    def kill(self) -> None:
        """End it between two moves of its strands: no line of their code, also no `finally`, reaches the world."""
        assert getcurrent() is self.scheduler.hub, "a process is killed from outside"
        if not self.alive:
            return
        self.alive = False
        for strand in self.strands:
            strand.cut()
        for tell in self.on_end:
            tell()

    def end(self) -> None:
        """Let it end soon, by itself or by another's hand."""
        self.scheduler.after(0, self.kill)

    def freeze(self, duration_ms: int) -> None:
        """Stop all its strands; what it asked the store for happens all the same."""
        self.frozen_until_ms = max(self.frozen_until_ms, self.scheduler.now_ms + duration_ms)
        self.scheduler.after(duration_ms, self._thaw_if_due)

    def thaw(self) -> None:
        """Let it go on, also before its time."""
        self.frozen_until_ms = self.scheduler.now_ms
        held, self.held = self.held, []
        for go_on in held:
            self.scheduler.after(0, go_on)

    def _thaw_if_due(self) -> None:
        if self.frozen_until_ms <= self.scheduler.now_ms:
            self.thaw()


class Strand:
    """A thread of a process. `role` says what it does there; `error` is what ended it and should not have."""

    def __init__(self, process: Process, role: str, live: Callable[[], None]) -> None:
        self.process = process
        self.role = role
        self.name = f"{process.name}.{role}"
        self.over = False
        self._live = live
        self._turn = 0
        self._greenlet = greenlet(self._run, parent=process.scheduler.hub)

    def wait(self) -> None:
        """Give way until woken."""
        if not self.process.alive:
            raise Killed
        self.process.scheduler.hub.switch()

    def sleep(self, duration_ms: int) -> None:
        if not self.leap(duration_ms):
            self.wake_after(duration_ms)
            self.wait()

    def leap(self, duration_ms: int) -> bool:
        """Sleep without giving way, if that makes no difference: nobody else would move. False: it would."""
        process, scheduler = self.process, self.process.scheduler
        to_ms = scheduler.now_ms + duration_ms
        if not process.alive or process.frozen_until_ms > to_ms or not scheduler.leap(to_ms):
            return False
        self._turn += 1
        return True

    def wake_after(self, delay_ms: int) -> None:
        """Go on after that time, unless it is woken before."""
        self.process.scheduler.after(delay_ms, partial(self._go_on, self._turn))

    def wake_next(self) -> None:
        """Go on now. Said at the end of an event."""
        self.process.scheduler.next(partial(self._go_on, self._turn))

    def cut(self) -> None:
        """Its process has died."""
        if not self.over and self._greenlet:
            self.process.scheduler.current = self
            self._greenlet.throw(Killed)
            self.process.scheduler.current = None
        self.over = True

    def _go_on(self, turn: int) -> None:
        process, scheduler = self.process, self.process.scheduler
        if self.over or turn != self._turn or not process.alive:
            return
        if process.frozen_until_ms > scheduler.now_ms:
            process.held.append(lambda: self._go_on(turn))
            return
        self._turn += 1
        scheduler.current = self
        try:
            self._greenlet.switch()
        finally:
            scheduler.current = None

    def _run(self) -> None:
        try:
            self._live()
        except Killed:
            pass
        finally:
            self.over = True
