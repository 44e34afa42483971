"""What `threading` is to code that runs in the simulation: its threads are strands of the process that starts them."""

from collections.abc import Callable

from tests.simulation.scheduler import Scheduler, Strand

_ROLES = {"garbage-collector": "collector"}
"""What threads are called that the judge has to know."""


class Lock:
    """Nothing to do: a strand gives way only where it waits, and none waits while it holds a lock.

    But the gauge of a lag: here it may measure twice at once, which harms nothing.
    """

    def __enter__(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        return


class Threads:
    """Stands in for the module `threading`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> Lock:  # noqa: N802  (as the module spells it)
        return Lock()

    def Event(self) -> "Event":  # noqa: N802
        return Event(self._scheduler)

    def Thread(self, target: Callable[[], None], name: str, daemon: bool) -> "Thread":  # noqa: N802
        return Thread(self._scheduler, target, name)


class Event:
    """`threading.Event`, waited for in the time of the process that waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiting: list[Strand] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for strand in waiting:
            strand.wake_after(0)

    def wait(self, timeout: float) -> bool:
        if not self._set:
            strand = self._scheduler.this()
            self._waiting.append(strand)
            strand.sleep(round(timeout * 1000 / strand.process.rate))
            if strand in self._waiting:
                self._waiting.remove(strand)
        return self._set


class Thread:
    """`threading.Thread`."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], None], name: str) -> None:
        self._scheduler = scheduler
        self._target = target
        self._name = name
        self._strand: Strand | None = None
        self._ended = Event(scheduler)

    def start(self) -> None:
        role = _ROLES.get(self._name, self._name.split("-", maxsplit=1)[0])
        self._strand = self._scheduler.this().process.spawn(role, self._run)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.over

    def join(self, timeout: float) -> None:
        if self.is_alive():
            self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()
