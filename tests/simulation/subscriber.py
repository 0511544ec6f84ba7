"""A subscriber of a simulation, over any number of connections and deaths of the server."""

import itertools

from amps._core.journal.reader import LogCursor
from tests.simulation.checks import Entry, Log, steps


class Subscriber:
    """A client with a bookmark store that asked for durable messages: a message that it has seen must never change."""

    def __init__(self) -> None:
        self.seen: list[Entry] = []
        self._cursor: LogCursor | None = None

    def disconnect(self) -> None:
        self._cursor = None

    def run(self, log: Log, durable: int, removed: list[Entry], most: int | None = None) -> None:
        """Read the messages that are durable now, and connect with the last bookmark if necessary.

        `removed`: messages that were removed from the log on purpose. A subscriber that comes too late for them
        begins at the beginning of the log. `most`: the number of messages that a slow subscriber takes at once.
        """
        if self._cursor is None:
            self._cursor = log.cursor_after(self.seen[-1]) if self.seen else None
            if self._cursor is None:
                known = not self.seen or (removed and self.seen[-1].position <= removed[-1].position)
                assert known, f"a delivered bookmark is unknown: {self.seen[-1]}"
                self.seen = list(removed)
                self._cursor = log.cursor()
        self.seen += itertools.islice(steps(self._cursor, durable), most)

    def check(self, entries: list[Entry]) -> None:
        assert entries[: len(self.seen)] == self.seen, "what was delivered is not what the log holds"
