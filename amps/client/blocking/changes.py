"""Waits of threads for each other that Ctrl-C at any line leaves intact.

A thread that waits in a `threading.Condition`, or an Event, gives up its lock and takes it again at the end. An
interrupt in between lets `with` release a lock that is not held, or that another thread holds: it is then the other
thread that fails. Here a waiting thread shares no lock. It waits at a gate of its own, and who makes a change opens all
gates.

An interrupt in `notify` may leave gates closed: each wait looks again by itself, soon. That also lets the main thread
notice a signal which has arrived just before the wait.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_AGAIN_S = 1.0
"""The longest single wait, in seconds."""


class Signal:
    """Something that happens once, and for which one thread waits."""

    __slots__ = ("_gate", "happened")

    def __init__(self) -> None:
        self.happened = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Note that it has happened."""
        self.happened = True
        with suppress(RuntimeError):  # open already
            self._gate.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it has happened; return whether it has. None: no limit."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.happened:
            left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._gate.acquire(timeout=min(left_s, LOOK_AGAIN_S))
        return True


class Changes:
    """Changes of something, and the threads that wait until a condition about it holds."""

    __slots__ = ("_gates",)

    def __init__(self) -> None:
        self._gates: set[threading.Lock] = set()

    @property
    def waiting(self) -> int:
        """The number of threads that wait."""
        return len(self._gates)

    def notify(self) -> None:
        """Let all threads that wait check their conditions. Called after the change; takes no lock that is shared."""
        if self._gates:
            for gate in tuple(self._gates):
                with suppress(RuntimeError):  # open already
                    gate.release()

    def wait_for(self, condition: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until the condition holds, which is checked after each change; return whether it does."""
        if condition():
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        gate = threading.Lock()
        gate.acquire()
        try:
            self._gates.add(gate)  # before the next check: a change after that opens the gate
            while not condition():
                left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0:
                    return False
                gate.acquire(timeout=min(left_s, LOOK_AGAIN_S))
        finally:
            self._gates.discard(gate)  # a method of C: an interrupt cannot come before it
        return True
