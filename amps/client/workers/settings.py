"""The arguments and counters of a worker. They can be sent to another process."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from amps.client.blocking.client import Client
from amps.client.blocking.ha import HAClient
from amps.client.errors import AMPSException, UsageException
from amps.client.protocol.message import Message


class Rejected(AMPSException):
    """Raised by a handler for a message that no further attempt can process: it becomes a dead letter at once."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """A snapshot of the counters of a worker, over all its processes."""

    handled: int = 0
    """Calls of the handler that returned; their messages are acknowledged."""
    failed: int = 0
    """Calls of the handler that raised."""
    retried: int = 0
    """Messages given back to the queue after a failure."""
    dead: int = 0
    """Messages that became dead letters."""
    running: int = 0
    """Handlers that run now."""
    waiting: int = 0
    """Messages held now for which no handler has begun."""
    restarts: int = 0
    """Processes that ended by themselves and were replaced."""
    connected: int = 0
    """Processes that are connected to a server and subscribed to the queue now."""

    def __add__(self, other: "WorkerStats") -> "WorkerStats":
        return WorkerStats(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker does, in each of its processes. Times are in seconds."""

    servers: str | tuple[str, ...] | Callable[[], Client]
    topic: str
    handler: Callable[[Message], Any]
    filter: str | None
    name: str | None
    concurrency: int
    max_backlog: int
    ack_batch_size: int
    ack_timeout: float
    max_attempts: int | None
    retry_delay: float
    max_retry_delay: float
    dead_letter_topic: str | None
    drain_timeout: float
    heartbeat: float | None
    logger: logging.Logger

    def make_client(self) -> Client:
        """Return a new client, not yet connected."""
        client = self.servers() if callable(self.servers) else self._own_client()
        if self.dead_letter_topic is not None and client.publish_store is not None:
            client.close()
            raise UsageException("dead letters need a client without a publish store, to learn of refusals")
        client.ack_batch_size = self.ack_batch_size
        client.ack_timeout = self.ack_timeout
        return client

    def _own_client(self) -> Client:
        assert not callable(self.servers)
        return HAClient(self.name, self.servers, heartbeat=self.heartbeat)

    def delay_after(self, attempts: int) -> float:
        """Return the seconds until a message that has failed so many times is given back."""
        return min(self.max_retry_delay, self.retry_delay * 2.0 ** min(attempts - 1, 60))
