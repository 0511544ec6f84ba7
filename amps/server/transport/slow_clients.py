"""Slow clients: how much output may wait for them, and what happens beyond (operations.md §2.1).

What a client does not take waits in memory. A pool (of the instance, or of a transport with limits of its own) bounds
the sum; a client may have at most ClientMaxCapacity of it. Beyond, the client with the most is disconnected, log
70-0004, reason `slow client`. Messages of ordinary subscriptions count, and so does everything that answers a command.
Messages of replays do not: they are paced by the reader. The age limit concerns messages only.

Each worker has an equal share of a pool; it cannot see what others buffer.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amps.server.transport.connection import Connection
    from amps.server.transport.worker import Worker


class MemoryPool:
    """Output memory of one worker's clients."""

    def __init__(self, worker: "Worker", limit_bytes: int) -> None:
        self._worker = worker
        self._limit_bytes = limit_bytes
        self._slow: dict[Connection, None] = {}

    def check(self, connection: "Connection") -> None:
        """Look at a client that does not keep up, after more output was given to it."""
        unsent_bytes = connection.unsent_bytes
        if unsent_bytes == 0:
            return
        self._slow[connection] = None
        listener = connection.listener
        share = listener.config.client_max_capacity
        if share is None:
            share = self._worker.config.client_max_capacity
        if unsent_bytes > share * self._limit_bytes:
            self._disconnect(connection)
            return
        waiting = {c: c.unsent_bytes for c in self._slow if not c.writable and c.phase.value != "closed"}
        self._slow = dict.fromkeys(waiting)
        if sum(waiting.values()) > self._limit_bytes:
            self._disconnect(max(waiting, key=waiting.__getitem__))

    def check_ages(self, now_s: float) -> None:
        """Disconnect clients whose oldest waiting message is older than ClientMessageAgeLimit."""
        for connection in list(self._slow):
            if connection.writable or connection.phase.value == "closed":
                del self._slow[connection]
                continue
            limit_s = connection.listener.config.client_message_age_limit_s
            if limit_s is None:
                limit_s = self._worker.config.client_message_age_limit_s
            if limit_s is not None and connection.unsent_age_s(now_s) > limit_s:
                self._disconnect(connection)

    def _disconnect(self, connection: "Connection") -> None:
        self._slow.pop(connection, None)
        self._worker.log.log("70-0004", client=connection.shown_name)
        connection.abort("slow client")
