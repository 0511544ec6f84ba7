"""The life of a worker in one process: connect, subscribe, run handlers, drain.

The thread that calls `run` owns the times at which messages go back to the queue. Other threads and signal handlers
reach it by events. To drain, the subscription gets a backlog of 0: the server then sends no message, but keeps the
leases of those that run. Unsubscribing at once would let another consumer handle them, too.
"""

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable

from amps.client.blocking.client import Client
from amps.client.enums import ConnectionState, Timeout
from amps.client.errors import AMPSException, DisconnectedException
from amps.client.workers.backlog import Backlog, Held
from amps.client.workers.outcomes import Outcomes
from amps.client.workers.pools import pool_for
from amps.client.workers.settings import Settings, WorkerStats

TICK_S = 0.5
"""The longest wait for an event. It bounds the delay of a signal that arrives just before a wait, of the report of
counters, and of the discovery that the client has given up."""
END_S = 5.0
"""The longest wait for the server to process the last acknowledgements."""

Event = tuple[float, Held] | BaseException | None


class Runner:
    """A worker in this process."""

    def __init__(
        self, settings: Settings, on_tick: Callable[[WorkerStats], object] = lambda _stats: None
    ) -> None:
        self._settings = settings
        self._on_tick = on_tick
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stops = 0
        self._opened = False
        self._delayed: list[tuple[float, int, Held]] = []
        self._numbers = itertools.count()
        self._backlog = Backlog()
        self._client: Client = settings.make_client()
        self._outcomes = Outcomes(settings, self._client, self._backlog, self._give_back_in)
        self._pool = pool_for(
            settings.handler, settings.concurrency, self._backlog, self._outcomes, self._handler_ended
        )

    @property
    def stats(self) -> WorkerStats:
        """A snapshot of the counters."""
        return self._outcomes.stats

    def stop(self) -> None:
        """Begin to drain; a second call ends at once. For any thread, and for signal handlers."""
        self._stops += 1
        self._events.put(None)

    def run(self) -> None:
        """Work until `stop`. Raises AMPSException if the client cannot connect or subscribe, or gives up for good."""
        client = self._client
        client.add_connection_state_listener(self._note_state)
        threading.Thread(target=self._open, name="amps-worker-open", daemon=True).start()
        try:
            down = 0
            while not self._stops:
                self._wait(TICK_S)
                lost = self._opened and not client.connected and not getattr(client, "reconnecting", False)
                down = down + 1 if lost else 0
                if down > 2:  # a client that will reconnect may not have begun
                    raise DisconnectedException("the worker's client has lost its connection for good")
            self._drain()
        finally:
            self._backlog.stop()
            self._pool.abandon()
            client.close(timeout=END_S)
            self._on_tick(self.stats)

    def _open(self) -> None:
        """Connect, subscribe and start the handlers; closing the client ends the attempt."""
        try:
            self._client.open()
            self._pool.start()
            self._subscribe(self._settings.max_backlog, replace=False, timeout=None)  # closing the client ends it
            self._opened = True
        except BaseException as error:
            self._events.put(error)

    def _subscribe(self, max_backlog: int, *, replace: bool, timeout: Timeout) -> None:
        self._client.subscribe(
            self._settings.topic,
            self._settings.filter,
            handler=self._outcomes.arrived,
            sub_id="worker",
            max_backlog=max_backlog,
            replace=replace,
            timeout=timeout,
        )

    def _note_state(self, state: ConnectionState) -> None:
        if state == ConnectionState.DISCONNECTED:
            self._backlog.drop_waiting()

    def _handler_ended(self) -> None:
        if self._stops:
            self._events.put(None)

    def _give_back_in(self, delay_s: float, held: Held) -> None:
        self._events.put((time.monotonic() + delay_s, held))

    def _wait(self, limit_s: float) -> None:
        """Wait for an event, or for the next message to give back, or for the limit."""
        if self._delayed:
            limit_s = min(limit_s, max(0.0, self._delayed[0][0] - time.monotonic()))
        try:
            event = self._events.get(timeout=limit_s)
        except queue.Empty:
            self._on_tick(self.stats)
        else:
            if isinstance(event, BaseException):
                if not self._stops:
                    raise event
            elif event is not None:
                heapq.heappush(self._delayed, (event[0], next(self._numbers), event[1]))
        now = time.monotonic()
        while self._delayed and (self._stops or self._delayed[0][0] <= now):
            self._outcomes.give_back(heapq.heappop(self._delayed)[2])

    def _drain(self) -> None:
        deadline = time.monotonic() + self._settings.drain_timeout
        self._backlog.stop()
        client, logger = self._client, self._settings.logger
        if client.logged_on:
            try:
                self._subscribe(0, replace=True, timeout=END_S)
            except AMPSException as error:
                logger.warning("worker: the queue may send messages while the worker drains: %s", error)
        while True:
            left_s = deadline - time.monotonic()
            running = self._backlog.running
            if not running or left_s <= 0 or self._stops > 1:
                break
            self._wait(min(TICK_S, left_s))
        while not self._events.empty():
            self._wait(0)
        self._wait(0)
        if running:
            logger.warning("worker: %d handlers still run; their messages go back to the queue", running)
        if client.logged_on:
            try:
                client.flush_acks()
                client.flush(timeout=END_S)
            except AMPSException as error:
                logger.warning("worker: the last acknowledgements may be lost: %s", error)
