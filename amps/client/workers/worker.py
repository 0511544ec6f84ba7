"""The public class: its arguments, its signals, and the choice between one process and several."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from amps.client.blocking.client import Client
from amps.client.errors import UsageException
from amps.client.protocol.command import check_number
from amps.client.protocol.message import Message
from amps.client.workers.runner import Runner
from amps.client.workers.settings import Settings, WorkerStats
from amps.client.workers.supervisor import Supervisor

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Processes the messages of a queue: calls `handler` with each, and acknowledges it when the handler returns.

    - servers: a connection string, several of them, or a function that returns a new client: an HAClient, or a Client
      if the worker is to end with its connection. With `dead_letter_topic`, it has no publish store.
    - topic, filter: the queue, and the messages of it.
    - handler: a function, which runs in threads, or a coroutine function, which runs as tasks of one event loop.
    - concurrency: the handlers that run at the same time in each process.
    - processes: 0 = handlers run in this process; otherwise in so many child processes with a client each. Children
      that die are replaced. They are spawned: the handler must be importable, and the program needs a
      `if __name__ == "__main__":` guard.
    - name: the client name; child processes add their number. By default, a unique name.
    - max_backlog: messages that each process holds at most, by default twice `concurrency`, at least 10. The queue's
      `MaxPerSubscriptionBacklog` may allow fewer.
    - ack_batch_size, ack_timeout: acknowledgements in a batch, by default half of `max_backlog`, and the seconds after
      which a smaller batch is sent.
    - max_attempts: failures of a message, as this process counts them, after which it becomes a dead letter; None: the
      queue's `MaxCancels` or `MaxDeliveries` is the limit.
    - retry_delay, max_retry_delay: seconds after the first failure until the message goes back to the queue, doubled
      with each failure, and the longest. They should be shorter than the queue's lease.
    - dead_letter_topic: gets the body of a dead letter; `amps.client.Failure.of(message)` is the reason. None: the
      message leaves the queue as expired, which runs the queue's actions.
    - drain_timeout: seconds that handlers have to end after `stop`. `run` then returns within about 2 s, also if the
      server does not answer.
    - heartbeat: seconds between heartbeats, by which a server that stops answering is noticed after twice this time;
      None = none. A client that a function returns keeps its own.
    - logger: by default `amps.client`.

    A handler that raises has failed. One that raises `amps.client.Rejected` makes its message a dead letter at once.
    Each message is handled at least once; again only if its acknowledgement is lost with a process, a connection or
    a lease.
    """

    def __init__(
        self,
        servers: str | Iterable[str] | Callable[[], Client],
        topic: str,
        handler: Callable[[Message], Any],
        *,
        filter: str | None = None,
        concurrency: int = 1,
        processes: int = 0,
        name: str | None = None,
        max_backlog: int | None = None,
        ack_batch_size: int | None = None,
        ack_timeout: float = 0.1,
        max_attempts: int | None = 5,
        retry_delay: float = 1.0,
        max_retry_delay: float = 30.0,
        dead_letter_topic: str | None = None,
        drain_timeout: float = 30.0,
        heartbeat: float | None = 10.0,
        logger: logging.Logger | None = None,
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler must be callable: {handler!r}")
        check_number("concurrency", concurrency, least=1)
        check_number("processes", processes)
        if max_attempts is not None:
            check_number("max_attempts", max_attempts, least=1)
        backlog = max(10, 2 * concurrency) if max_backlog is None else max_backlog
        check_number("max_backlog", backlog, least=1)
        batch = backlog // 2 if ack_batch_size is None else ack_batch_size
        check_number("ack_batch_size", batch)
        for what, seconds in (
            ("ack_timeout", ack_timeout),
            ("retry_delay", retry_delay),
            ("max_retry_delay", max_retry_delay),
            ("drain_timeout", drain_timeout),
        ):
            if seconds < 0:
                raise ValueError(f"{what} cannot be negative: {seconds}")
        if heartbeat is not None and not heartbeat > 0:
            raise ValueError(f"heartbeat must be positive, or None: {heartbeat}")
        self._settings = Settings(
            servers=servers if isinstance(servers, str) or callable(servers) else tuple(servers),
            topic=topic,
            handler=handler,
            filter=filter,
            name=name,
            concurrency=concurrency,
            max_backlog=backlog,
            ack_batch_size=batch,
            ack_timeout=ack_timeout,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            max_retry_delay=max_retry_delay,
            dead_letter_topic=dead_letter_topic,
            drain_timeout=drain_timeout,
            heartbeat=heartbeat,
            logger=logger or logging.getLogger("amps.client"),
        )
        self._processes = processes
        self._lock = threading.Lock()
        self._engine: Runner | Supervisor | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Worker {self._settings.topic!r}: {self.stats}>"

    @property
    def stats(self) -> WorkerStats:
        """A snapshot of the counters. Those of child processes are about half a second old."""
        engine = self._engine
        return WorkerStats() if engine is None else engine.stats

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop`; then drain and return. A worker runs once.

        To drain: the queue sends no more messages, handlers that run may end within `drain_timeout`, their
        acknowledgements are sent, and all other messages go back to the queue. A second signal ends the drain. Signals
        are handled only if the main thread calls; the former handlers are restored. Raises AMPSException if the
        worker cannot connect or subscribe (child processes try again instead), UsageException if the topic is no
        queue, or child processes cannot start.
        """
        with self._lock:
            if self._engine is not None:
                raise UsageException("a worker runs once: make another")
            settings = self._settings
            engine = Supervisor(settings, self._processes) if self._processes else Runner(settings)
            self._engine = engine
            if self._stopped:
                engine.stop()
        with _signals(engine.stop):
            engine.run()

    def stop(self) -> None:
        """Let `run` drain and return. For any thread; may be called before `run`."""
        with self._lock:
            first = not self._stopped
            self._stopped = True
            if first and self._engine is not None:
                self._engine.stop()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on signals, if this is the main thread; restore the former handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, lambda *_: stop()) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
