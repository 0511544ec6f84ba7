"""What follows on the end of a handler: an acknowledgement, another attempt, or a dead letter.

A message is acknowledged only after its handler has returned, or with its dead letter, in one transaction. So a process
that dies at any moment loses no message, and makes no second dead letter; the queue delivers the message again. A
message that a transaction of its handler has settled is out of the worker's hands, whatever the handler does then: it
is acknowledged, or leased to another consumer. Attempts are counted by this process; a queue with
`MaxCancels` or `MaxDeliveries` also counts them, over all consumers.
"""

import base64
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amps.client.blocking.client import Client
from amps.client.errors import AMPSException, TransactionRefusedException
from amps.client.frontend.claims import is_settled
from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog, Held, Key
from amps.client.workers.settings import Rejected, Settings, WorkerStats

MAX_COUNTED = 100_000
"""The number of messages whose failures are remembered; the oldest are forgotten first."""
MAX_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a message became a dead letter."""

    topic: str
    """The queue."""
    bookmark: str
    """The message's bookmark in the queue."""
    attempts: int
    """The failures that the last worker counted."""
    error: str
    """The last exception: its type and text, shortened to 2000 characters."""
    correlation_id: str | None
    """The correlation id that the message had in the queue."""

    @classmethod
    def of(cls, message: Message) -> "Failure":
        """Return the failure that a dead letter records. Raises ValueError for other messages."""
        try:
            fields = json.loads(base64.b64decode(message.correlation_id or "", validate=True))
            return cls(**fields)
        except (ValueError, TypeError) as error:
            raise ValueError(f"not a dead letter of a worker: {error}") from error

    def encoded(self) -> str:
        """Return the correlation id of the dead letter."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return base64.b64encode(json.dumps(fields).encode()).decode()


class Outcomes:
    """Settles the messages of one process. Any thread may call all methods; `failed` may wait for the server."""

    def __init__(
        self, settings: Settings, client: Client, backlog: Backlog, give_back_in: Callable[[float, Held], Any]
    ) -> None:
        self._settings = settings
        self._client = client
        self._backlog = backlog
        self._give_back_in = give_back_in
        self._lock = threading.Lock()
        self._failures: OrderedDict[Key, int] = OrderedDict()
        self._handled = self._failed = self._retried = self._dead = 0

    @property
    def stats(self) -> WorkerStats:
        """A snapshot of the counters of this process."""
        backlog = self._backlog
        with self._lock:
            return WorkerStats(
                self._handled, self._failed, self._retried, self._dead, backlog.running, backlog.waiting
            )

    def arrived(self, message: Message) -> None:
        """Hold a message for a handler, or acknowledge again one that is settled. Never waits."""
        if not self._backlog.put(message):
            self._ack(message, "")

    def succeeded(self, held: Held) -> None:
        """Acknowledge a message. It leaves the queue even if its lease has ended meanwhile."""
        self._end(held, settled=True)
        with self._lock:
            self._handled += 1
        self._ack(held.message, "")

    def failed(self, held: Held, error: BaseException) -> None:
        """Give a message back after a delay, or make it a dead letter. Waits until a dead letter is persisted."""
        settings = self._settings
        with self._lock:
            self._failed += 1
        if is_settled(held.message):
            self._failed_after_transaction(held, error)
            return
        with self._lock:
            attempts = self._failures[held.key] = self._failures.pop(held.key, 0) + 1
            if len(self._failures) > MAX_COUNTED:
                self._failures.popitem(last=False)
        last = isinstance(error, Rejected) or (
            settings.max_attempts is not None and attempts >= settings.max_attempts
        )
        settings.logger.warning(
            "worker: attempt %d at the message %s of %s failed%s",
            attempts, held.message.bookmark, held.message.topic, ", the last" if last else "",
            exc_info=error,
        )  # fmt: skip
        if not last or not self._bury(held, attempts, error):
            self._give_back_in(settings.delay_after(attempts), held)

    def _failed_after_transaction(self, held: Held, error: BaseException) -> None:
        """Note the failure of a handler whose transaction has settled the message: no further attempt follows here."""
        lost = isinstance(error, TransactionRefusedException)
        self._end(held, settled=not lost)
        message = held.message
        if lost:
            self._settings.logger.warning(
                "worker: the message %s of %s is not this worker's any more: %s", message.bookmark, message.topic, error
            )
        else:
            self._settings.logger.warning(
                "worker: the handler of the message %s of %s failed after its transaction; the message is not handled"
                " again", message.bookmark, message.topic, exc_info=error,
            )  # fmt: skip

    def give_back(self, held: Held) -> None:
        """Return a message to the queue."""
        if self._backlog.release(held, settled=False):
            with self._lock:
                self._retried += 1
            self._ack(held.message, "cancel")

    def _bury(self, held: Held, attempts: int, error: BaseException) -> bool:
        """Make a dead letter; return whether the message is done with: the dead letter exists, or another consumer has
        the message.
        """
        topic = self._settings.dead_letter_topic
        if topic is None:
            if self._end(held, settled=False):  # else the queue has it again, perhaps for another consumer
                self._ack(held.message, "expire")
        else:
            message = held.message
            text = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]
            failure = Failure(
                message.topic or "", message.bookmark or "", attempts, text, message.correlation_id
            )
            try:
                with self._client.transaction(message) as burial:
                    burial.publish(topic, message.data, correlation_id=failure.encoded())
            except TransactionRefusedException as refused:
                self._failed_after_transaction(held, refused)
                return True
            except AMPSException as refused:
                self._settings.logger.error("worker: no dead letter in %s: %s", topic, refused)
                return False
            self._end(held, settled=True)
        with self._lock:
            self._dead += 1
        return True

    def _end(self, held: Held, *, settled: bool) -> bool:
        with self._lock:
            self._failures.pop(held.key, None)
        return self._backlog.release(held, settled=settled)

    def _ack(self, message: Message, options: str) -> None:
        try:
            message.ack(options)
        except AMPSException as error:  # the worker has ended, or the connection is lost: the queue delivers it again
            self._settings.logger.warning("worker: %s is not acknowledged: %s", message.bookmark, error)
