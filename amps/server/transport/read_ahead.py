"""Threads that wait for the disk, so that the worker's event loop need not.

What is asked for is read in the order of asking; with several threads, so that a device with a queue has one. Whoever
asked is told in the event loop. The threads begin with the first question: where the log lies in memory there are none.
"""

import queue
import threading
from collections.abc import Callable

from amps._core.log_reader import LogFile
from amps._core.read_ahead import read

THREADS = 8


class ReadAhead:
    """Reads parts of journals into memory."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """`call_soon`: runs a function in the event loop; raises RuntimeError if that has ended."""
        self._call_soon = call_soon
        self._waiting: queue.SimpleQueue[tuple[LogFile, int, int, Callable[[], object]]] = queue.SimpleQueue()
        self._started = False

    def ask(self, file: LogFile, offset: int, length: int, done: Callable[[], object]) -> None:
        """Have a part of a file read; `done` is called then."""
        if not self._started:
            self._started = True
            for number in range(THREADS):
                threading.Thread(target=self._run, name=f"read ahead {number}", daemon=True).start()
        self._waiting.put((file, offset, length, done))

    def _run(self) -> None:
        while True:
            file, offset, length, done = self._waiting.get()
            read(file, offset, length)
            try:
                self._call_soon(done)
            except RuntimeError:
                return  # the event loop has ended
            # Not until the next question: a file is held by who holds it.
            del file, done
