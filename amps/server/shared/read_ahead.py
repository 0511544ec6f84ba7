"""Threads that wait for the disk, so that the worker's event loop need not.

What is asked for is read in the order of asking; with several threads, so that a device with a queue has one. Whoever
asked is told in the event loop, and told of what cannot be read. The threads begin with the first question: where the
log lies in memory there are none.
"""

import queue
import threading
from collections.abc import Callable
from functools import partial

from amps._core.journal.reader import LogFile, LogUnreadable
from amps._core.journal.search import read

THREADS = 8

Done = Callable[[LogUnreadable | None], object]
"""Told that something is done, or why it cannot be."""


class ReadAhead:
    """Reads parts of journals into memory, and does what else takes waiting for the disk."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """`call_soon`: runs a function in the event loop; raises RuntimeError if that has ended."""
        self._call_soon = call_soon
        self._waiting: queue.SimpleQueue[tuple[Callable[[], object], Done]] = queue.SimpleQueue()
        self._started = False

    def ask(self, file: LogFile, offset: int, length: int, done: Done) -> None:
        """Have a part of a file read; `done` is called then."""
        self.have_done(partial(read, file, offset, length), done)

    def have_done(self, work: Callable[[], object], done: Done) -> None:
        """Have something else done, which raises nothing but LogUnreadable; `done` is called then."""
        if not self._started:
            self._started = True
            for number in range(THREADS):
                threading.Thread(target=self._run, name=f"read ahead {number}", daemon=True).start()
        self._waiting.put((work, done))

    def _run(self) -> None:
        while True:
            work, done = self._waiting.get()
            problem = None
            try:
                work()
            except LogUnreadable as met:
                problem = met.with_traceback(None)  # which holds the file
            try:
                self._call_soon(partial(done, problem))
            except RuntimeError:
                return  # the event loop has ended
            # Not until the next question: a file is held by who holds it.
            del work, done, problem
