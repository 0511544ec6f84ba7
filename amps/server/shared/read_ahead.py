"""Threads that wait for the disk, so that the worker's event loop need not.

Parts of files are read in the order of the requests, by several threads, so that a device with a queue can use it. The
callback runs in the event loop, and receives the error if the part cannot be read. The threads are started by the first
request: where the log is in memory there are none.
"""

import queue
import threading
from collections.abc import Callable
from functools import partial

from amps._core.journal.reader import LogFile, LogUnreadable
from amps._core.journal.search import read

THREADS = 8

Done = Callable[[LogUnreadable | None], object]
"""Called when the work is done, with the error if it failed."""


class ReadAhead:
    """Reads parts of journals into memory, and does other work that may wait for the disk."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """`call_soon` calls a function in the event loop; it raises RuntimeError if the loop has ended."""
        self._call_soon = call_soon
        self._waiting: queue.SimpleQueue[tuple[Callable[[], object], Done]] = queue.SimpleQueue()
        self._started = False

    def ask(self, file: LogFile, offset: int, length: int, done: Done) -> None:
        """Have a part of a file read; `done` is called afterwards."""
        self.have_done(partial(read, file, offset, length), done)

    def have_done(self, work: Callable[[], object], done: Done) -> None:
        """Have other work done, which raises nothing but LogUnreadable; `done` is called afterwards."""
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
                problem = met.with_traceback(None)  # the traceback would hold the file
            try:
                self._call_soon(partial(done, problem))
            except RuntimeError:
                return  # the event loop has ended
            # Not kept until the next request: `problem` and `work` refer to a file.
            del work, done, problem
