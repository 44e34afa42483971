"""The connections of this process to servers: shared by stores of equal options, and never used across a fork."""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Connections(Generic[K, T]):
    """Connections by what they are opened with, which has to be comparable but need not be hashable."""

    def __init__(self, connect: Callable[[K], T]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._opened: list[tuple[K, T]] = []
        self._inherited: list[tuple[K, T]] = []
        os.register_at_fork(after_in_child=self._forget_parents)

    def open(self, options: K) -> T:
        """The connections of these options, opened once."""
        with self._lock:
            for known, opened in self._opened:
                if known == options:
                    return opened
            opened = self._connect(options)
            self._opened.append((options, opened))
            return opened

    def forget(self, opened: T) -> None:
        """Open new connections for the next caller. Callers that use these may go on."""
        with self._lock:
            self._opened = [(options, each) for options, each in self._opened if each is not opened]

    def _forget_parents(self) -> None:
        """Start with no connections in a forked child: the thread that serves them was not forked.

        Keep them, unused: closing them would notify the server over the parent's sockets.
        """
        self._lock = threading.Lock()
        self._inherited, self._opened = [*self._inherited, *self._opened], []
