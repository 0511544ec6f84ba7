"""Slow clients: how much output may wait for them, and what happens beyond (operations.md §2.1).

Output that a client does not read waits in memory. A pool (of the instance, or of a transport with limits of its own)
limits the sum over the clients of all workers; a client may have at most ClientMaxCapacity of it. Beyond the limit, the
client with the most waiting output is disconnected, log 70-0004, reason `slow client`. Messages of ordinary
subscriptions count, and so do all answers to commands. Messages of replays do not: the reader sets their speed. The age
limit concerns messages only.

A worker disconnects only its own clients. It publishes their waiting output in shared memory
(amps/server/memory_use.py), once per flush of output and every TICK_S. When the pool is full, the worker with the
largest client disconnects it, and the others wake that worker. Only one worker decides at a time, by the published
values.

A pool may be exceeded by the output of workers between two checks, and by the outputs below OUTPUT_HIGH_BYTES of
connection.py, which do not count. If a worker does not respond, and has the largest client or is deciding, the others
wait for it up to PATIENCE_S. After that they disconnect their own clients until the pool has room.
"""

from amps.server.memory_use import Deciding
from amps.server.transport.context import WorkerContext
from amps.server.transport.session import Phase, Session

PATIENCE_S = 1.0


class MemoryPool:
    """One worker's part of a pool of output memory for slow clients."""

    def __init__(self, worker: WorkerContext, number: int, limit_bytes: int, deciding: Deciding) -> None:
        self._worker = worker
        self._number = number
        self._limit_bytes = limit_bytes
        self._deciding = deciding
        self._shared = worker.runtime.memory_use
        self._slow: dict[Session, int] = {}  # waiting output of each, at its last check
        self._used_bytes = 0  # their sum
        self._largest_bytes = 0  # an upper bound of their largest; exact after `_look`
        self._published = 0, 0
        self._full_since_s: float | None = None

    def check(self, connection: Session) -> None:
        """Check a client that does not keep up, after more output was added for it."""
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
        """Remove a client that has caught up or disconnected."""
        known_bytes = self._slow.pop(connection, None)
        if known_bytes is not None:
            self._used_bytes -= known_bytes
            if known_bytes >= self._largest_bytes:
                self._largest_bytes = max(self._slow.values(), default=0)
            self._publish()

    def settle(self, now_s: float) -> None:
        """Publish the waiting output and make room if the pool is full, after checks or a wake-up by another worker."""
        if not self._slow:
            return
        self._publish()
        if self._is_full():
            self._look()
            self._make_room(now_s)
        else:
            self._full_since_s = None

    def look_around(self, now_s: float) -> None:
        """Update the waiting output of all clients, and disconnect those over the age limit; called every TICK_S."""
        if self._slow:
            self._look()
            self._check_ages(now_s)
            self.settle(now_s)

    def _look(self) -> None:
        """Measure the waiting output of all slow clients again."""
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
        """Disconnect the pool's largest client while the pool is full, or wake the worker that has it."""
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
