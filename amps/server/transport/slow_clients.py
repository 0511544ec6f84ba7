"""Slow clients: how much output may wait for them, and what happens beyond (operations.md §2.1).

What a client does not take waits in memory. A pool (of the instance, or of a transport with limits of its own) bounds
the sum over the clients of all workers; a client may have at most ClientMaxCapacity of it. Beyond, the client with the
most is disconnected, log 70-0004, reason `slow client`. Messages of ordinary subscriptions count, and so does
everything that answers a command. Messages of replays do not: they are paced by the reader. The age limit concerns
messages only.

A worker disconnects its own clients only. It says what they have in shared memory (amps/server/memory_use.py), once
per flush of output and every TICK_S. Where the pool is full, the worker with the largest client disconnects it, and
the others wake that worker. Only one worker decides at a time, by what all have said so far.

How far a pool may be exceeded: by what workers hand out between two looks, and by the outputs below OUTPUT_HIGH_BYTES
of connection.py, which do not count. A worker that does not answer, and has the largest client or decides just now,
is waited for up to PATIENCE_S; after that the others disconnect their own clients until the pool has room.
"""

from amps.server.memory_use import Deciding
from amps.server.transport.context import WorkerContext
from amps.server.transport.session import Phase, Session

PATIENCE_S = 1.0


class MemoryPool:
    """Output memory of slow clients: one worker's part in a pool."""

    def __init__(self, worker: WorkerContext, number: int, limit_bytes: int, deciding: Deciding) -> None:
        self._worker = worker
        self._number = number
        self._limit_bytes = limit_bytes
        self._deciding = deciding
        self._shared = worker.runtime.memory_use
        self._slow: dict[Session, int] = {}  # what waits for each, when it was last looked at
        self._used_bytes = 0  # their sum
        self._largest_bytes = 0  # of them; too much after that one took some, until the next `_look`
        self._published = 0, 0
        self._full_since_s: float | None = None

    def check(self, connection: Session) -> None:
        """Look at a client that does not keep up, after more output was given to it."""
        if connection.phase is Phase.CLOSED:
            return
        unsent_bytes = connection.unsent_bytes
        known_bytes = self._slow.get(connection)
        if unsent_bytes == 0 and known_bytes is None:
            return
        listener = connection.listener
        share = listener.config.client_max_capacity
        if share is None:
            share = self._worker.config.client_max_capacity
        if unsent_bytes > share * self._limit_bytes:
            self._disconnect(connection)
            return
        self._slow[connection] = unsent_bytes
        self._used_bytes += unsent_bytes - (known_bytes or 0)
        self._largest_bytes = max(self._largest_bytes, unsent_bytes)

    def forget(self, connection: Session) -> None:
        """A client has caught up, or has left."""
        known_bytes = self._slow.pop(connection, None)
        if known_bytes is not None:
            self._used_bytes -= known_bytes
            if known_bytes >= self._largest_bytes:
                self._largest_bytes = max(self._slow.values(), default=0)
            self._publish()

    def settle(self, now_s: float) -> None:
        """Clients were looked at, or another worker rang: say what they have, and see to it that the pool has room."""
        if not self._slow:
            return
        self._publish()
        if self._is_full():
            self._look()
            self._make_room(now_s)
        else:
            self._full_since_s = None

    def look_around(self, now_s: float) -> None:
        """Every TICK_S: take note of what clients have read, and disconnect those that are too late."""
        if self._slow:
            self._look()
            self._check_ages(now_s)
            self.settle(now_s)

    def _look(self) -> None:
        """Look at all slow clients anew."""
        self._slow = {client: client.unsent_bytes for client in self._slow}
        self._used_bytes = sum(self._slow.values())
        self._largest_bytes = max(self._slow.values())
        self._publish()

    def _publish(self) -> None:
        now = self._used_bytes, self._largest_bytes
        if now != self._published:
            self._published = now
            self._shared.publish(self._worker.index, self._number, *now)

    def _is_full(self) -> bool:
        return self._shared.used_bytes(self._number) > self._limit_bytes

    def _make_room(self, now_s: float) -> None:
        """Disconnect the pool's largest client while it is full, or ask the worker that has it to do so."""
        if self._full_since_s is None:
            self._full_since_s = now_s
        patient = now_s - self._full_since_s < PATIENCE_S
        with self._deciding.tried() as alone:
            while self._slow and self._is_full():
                worker, _ = self._shared.largest(self._number)
                if patient and worker != self._worker.index:
                    self._worker.runtime.transport_wake_ups[worker].send()
                    return
                if patient and not alone:
                    return
                self._disconnect(max(self._slow, key=self._slow.__getitem__))
        self._full_since_s = None

    def _check_ages(self, now_s: float) -> None:
        """Disconnect clients whose oldest waiting message is older than ClientMessageAgeLimit."""
        for connection in list(self._slow):
            limit_s = connection.listener.config.client_message_age_limit_s
            if limit_s is None:
                limit_s = self._worker.config.client_message_age_limit_s
            if limit_s is not None and connection.unsent_age_s(now_s) > limit_s:
                self._disconnect(connection)

    def _disconnect(self, connection: Session) -> None:
        self._worker.log.log("70-0004", client=connection.shown_name)
        connection.abort("slow client")
        self.forget(connection)
