"""A subscriber of a simulation, over any number of connections and deaths of the server."""

from amps._core.log_reader import LogCursor
from tests.simulation.checks import Entry, Log, steps


class Subscriber:
    """A client with a bookmark store that asked for durable messages: what it has seen must stay as it was."""

    def __init__(self) -> None:
        self.seen: list[Entry] = []
        self._cursor: LogCursor | None = None

    def disconnect(self) -> None:
        self._cursor = None

    def run(self, log: Log, durable: int) -> None:
        """Take what is durable now, connecting with the last bookmark if necessary."""
        if self._cursor is None:
            self._cursor = log.cursor_after(self.seen[-1]) if self.seen else log.cursor()
            assert self._cursor is not None, f"a delivered bookmark is unknown: {self.seen[-1]}"
        self.seen += steps(self._cursor, durable)

    def check(self, entries: list[Entry]) -> None:
        assert entries[: len(self.seen)] == self.seen, "what was delivered is not what the log holds"
