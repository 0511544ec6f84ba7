"""Publishing that ends only when everything is persisted, whatever happens to the connection in between.

Every message goes through a publish store, so the client numbers it and keeps it until the server has
acknowledged it. When the connection is lost the publisher connects again; the logon acknowledgement says how
far the server has got, and the client sends the rest of the store before anything new.
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from amps.client import Client, Message
from amps.client.errors import ConnectionException, DisconnectedException, TimedOutException
from amps.client.stores import MemoryPublishStore

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0
STORE_LIMIT_BYTES = 256 * 2**20


class PublishFailed(ConnectionException):
    """Messages could not be brought to the server in the time allowed."""


class Resumption(NamedTuple):
    """What a reconnect found."""

    held: int  # the last sequence number the server has
    resent: int  # messages in the store after it


class ReliablePublisher:
    """A client that publishes, reconnects and knows what is acknowledged."""

    def __init__(
        self,
        make_client: Callable[[MemoryPublishStore], Client],
        *,
        reconnect_s: float = 30.0,
    ) -> None:
        """`make_client` builds the unconnected client around the store; `reconnect_s` bounds an outage."""
        self.store = MemoryPublishStore(max_bytes=STORE_LIMIT_BYTES)
        self.client = make_client(self.store)
        self.client.set_failed_write_handler(self._failed)
        self.reconnect_s = reconnect_s
        self.published = 0
        self.failures = 0
        self.first_failure: str | None = None
        self._lock = threading.Lock()

    @property
    def acknowledged(self) -> int:
        """Messages the server is known to have made durable, or to have refused."""
        return self.published - self.store.unpersisted_count()

    def open(self) -> None:
        """The first connection: fails at once if there is no server."""
        self.client.open()

    def close(self) -> None:
        self.client.close()

    def publish(self, topic: str, data: bytes) -> None:
        """Hand over one message; returns when it is in the store and, if the server is there, on its way."""
        while True:
            try:
                self.client.publish(topic, data)
                break
            except DisconnectedException:  # raised only before the message is in the store
                self.reconnect()
        self.published += 1

    def reconnect(self) -> Resumption:
        """Connect again, waiting longer each time; the client then sends what is left in its store."""
        deadline = time.monotonic() + self.reconnect_s
        delay_s = FIRST_DELAY_S
        while True:
            try:
                self.client.disconnect()
                self.client.connect()
                held = self.client.logon().sequence or 0
                return Resumption(held, max(0, self.store.highest_unpersisted() - held))
            except (ConnectionException, TimedOutException) as error:
                if time.monotonic() + delay_s > deadline:
                    raise PublishFailed(
                        f"no connection to the server for {self.reconnect_s:g} s ({error}); "
                        f"{self.store.unpersisted_count()} messages are not acknowledged"
                    ) from error
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait until every message is acknowledged, over as many reconnects as it takes.

        `timeout_s` bounds the time in which nothing is acknowledged.
        """
        while True:
            open_before = self.store.unpersisted_count()
            try:
                self.client.publish_flush(timeout=timeout_s)
                return
            except DisconnectedException:
                self.reconnect()
            except TimedOutException as error:
                if self.store.unpersisted_count() < open_before:
                    continue
                raise PublishFailed(
                    f"{self.store.unpersisted_count()} messages are not acknowledged after {timeout_s:g} s"
                ) from error

    def _failed(self, message: Message, reason: str) -> None:
        """The server refused a message: it will not be sent again."""
        with self._lock:
            self.failures += 1
            if self.first_failure is None:
                self.first_failure = f"{message.topic}: {reason}"
