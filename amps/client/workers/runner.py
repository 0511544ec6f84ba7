"""The life of a worker in one process: connect, subscribe, run handlers, drain.

The thread that calls `run` owns the times at which messages go back to the queue. Other threads and signal handlers
reach it by events. To drain, the subscription gets a backlog of 0: the server then sends no message, but keeps the
leases of those that run. Unsubscribing at once would let another consumer handle them, too. Requests to the server
wait in threads of their own, so that neither its silence nor a second signal finds this one waiting.

Only a queue has leases, and numbers its messages by bookmarks; without them, messages could not be told apart. So the
acknowledgement of each subscription must name a backlog (client.md §6), and each message must have a bookmark.
"""

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from amps.client.blocking.client import Client
from amps.client.enums import AckType, ConnectionState, Timeout
from amps.client.errors import AMPSException, DisconnectedException, UsageException
from amps.client.protocol.command import Command
from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog, Held
from amps.client.workers.outcomes import Outcomes
from amps.client.workers.pools import pool_for
from amps.client.workers.settings import Settings, WorkerStats

TICK_S = 0.5
"""The longest wait for an event. It bounds the delay of a signal that arrives just before a wait, of the report of
counters, and of the discovery that the client has given up."""
END_S = 5.0
"""The longest wait for the server to process the last acknowledgements, and for a child process."""
LAST_S = 2.0
"""The time that it has for them if `drain_timeout` has passed."""

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
        return replace(self._outcomes.stats, connected=int(self._opened and self._client.logged_on))

    def stop(self) -> None:
        """Begin to drain; a second call ends at once. For any thread, and for signal handlers."""
        self._stops += 1
        self._events.put(None)

    def run(self) -> None:
        """Work until `stop`.

        Raises AMPSException if the client cannot connect or subscribe, or gives up for good; UsageException if the
        topic is no queue.
        """
        client = self._client
        close_s = END_S
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
            close_s = self._drain()
        finally:
            self._backlog.stop()
            self._pool.abandon()
            client.close(timeout=close_s)
            self._on_tick(self.stats)

    def _open(self) -> None:
        """Connect, subscribe and start the handlers; closing the client ends the attempt."""
        try:
            self._client.open()
            self._pool.start()
            self._subscribe(self._settings.max_backlog, "", timeout=None)  # closing the client ends it
            self._opened = True
        except BaseException as error:
            self._events.put(error)

    def _subscribe(self, max_backlog: int, options: str, *, timeout: Timeout) -> None:
        command = Command(
            "subscribe",
            self._settings.topic,
            filter=self._settings.filter,
            sub_id="worker",
            options=f"max_backlog={max_backlog}{options}",
            ack_type=AckType.PROCESSED,  # `_arrived` gets it, too
        )
        self._client.execute_async(command, self._arrived, timeout=timeout)

    def _arrived(self, message: Message) -> None:
        is_ack = message.command == "ack"
        if "max_backlog" not in (message.options or "") if is_ack else message.bookmark is None:
            topic = message.topic or self._settings.topic
            why = "only a queue keeps messages until a worker has handled them"
            self._events.put(UsageException(f"{topic!r} is no queue: {why}"))
        elif not is_ack:
            self._outcomes.arrived(message)

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

    def _drain(self) -> float:
        """Let handlers end, within `drain_timeout`; return the seconds that closing the client may take."""
        deadline = time.monotonic() + self._settings.drain_timeout
        self._backlog.stop()
        client, backlog = self._client, self._backlog
        if client.logged_on:
            self._ask(
                lambda: self._subscribe(0, ",replace", timeout=END_S),
                "the queue may send messages while the worker drains",
            )
        self._wait_while(lambda: backlog.running > 0, deadline)
        while not self._events.empty():
            self._wait(0)
        self._wait(0)
        if running := backlog.running:
            self._settings.logger.warning(
                "worker: %d handlers still run; their messages go back to the queue", running
            )
        if not client.logged_on:
            return LAST_S
        asked = self._ask(self._flush, "the last acknowledgements may be lost")
        now = time.monotonic()
        self._wait_while(asked.is_alive, min(now + END_S, max(deadline, now + LAST_S)))
        return 0 if asked.is_alive() else LAST_S

    def _flush(self) -> None:
        self._client.flush_acks()
        self._client.flush(timeout=None)  # closing the client ends it

    def _ask(self, request: Callable[[], object], otherwise: str) -> threading.Thread:
        """Send a request to the server; wait for its answer in a new thread. `otherwise`: what follows on a failure."""

        def ask() -> None:
            try:
                request()
            except AMPSException as error:
                self._settings.logger.warning("worker: %s: %s", otherwise, error)
            self._events.put(None)

        asking = threading.Thread(target=ask, name="amps-worker-end", daemon=True)
        asking.start()
        return asking

    def _wait_while(self, condition: Callable[[], bool], deadline: float) -> None:
        """Wait for events until the condition is false, the deadline, or a second `stop`."""
        while condition() and self._stops < 2 and (left_s := deadline - time.monotonic()) > 0:
            self._wait(min(TICK_S, left_s))
