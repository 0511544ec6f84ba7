"""Publishing over reconnects, until all messages are persisted.

Every message goes through a publish store, so the client numbers it and keeps it until the server has
acknowledged it. When the connection is lost, the publisher connects again. The logon acknowledgement has the last
sequence of the server, and the client sends the rest of the store before new messages.
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Unpack

from amps.client import Client, Message, PublishArgs
from amps.client.blocking.deadlines import left_until
from amps.client.errors import ConnectionException, DisconnectedException, TimedOutException
from amps.client.servers.rivals import Rivals
from amps.client.stores import MemoryPublishStore

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0
FIRST_CONNECTION_S = 10.0
TAKE_OVERS_MAX = 5
STORE_LIMIT_BYTES = 256 * 2**20


class PublishFailed(ConnectionException):
    """Messages could not be published within the time limit."""


class Resumption(NamedTuple):
    """The result of a reconnect."""

    held: int  # the last sequence number the server has
    resent: int  # number of messages in the store after it


class ReliablePublisher:
    """A client that publishes, reconnects and counts acknowledged messages."""

    def __init__(
        self,
        make_client: Callable[[MemoryPublishStore], Client],
        *,
        reconnect_s: float = 30.0,
    ) -> None:
        """`make_client` creates the unconnected client with the store; `reconnect_s` limits an outage."""
        self.store = MemoryPublishStore(max_bytes=STORE_LIMIT_BYTES)
        self.client = make_client(self.store)
        self.client.set_failed_write_handler(self._failed)
        self.reconnect_s = reconnect_s
        self._rivals = Rivals()
        self.published = 0
        self.failures = 0
        self.first_failure: str | None = None
        self._lock = threading.Lock()
        self._acknowledged_before = 0
        self._progress_at = time.monotonic()

    @property
    def acknowledged(self) -> int:
        """The number of messages that the server has acknowledged as durable, or refused."""
        return self.published - self.store.unpersisted_count()

    def open(self) -> None:
        """Connect for the first time; fails at once if there is no server."""
        self.client.open(timeout=min(FIRST_CONNECTION_S, self.reconnect_s))

    def close(self) -> None:
        """Close the client; unacknowledged messages are dropped."""
        self.client.close(timeout=0)

    def publish(self, topic: str, data: bytes, *, delta: bool = False, **fields: Unpack[PublishArgs]) -> None:
        """Publish one message; return when it is in the store and, if the server is connected, queued for sending.

        With `delta`, it has only the changed fields of a record. `fields`: see `PublishArgs`. A server that accepts no
        messages for `reconnect_s` counts as lost.
        """
        while True:
            before = self._progress()
            if before[0] == self.published:
                self._progress_at = time.monotonic()  # no message was waiting
            try:
                if delta:
                    self.client.delta_publish(topic, data, timeout=self.reconnect_s, **fields)
                else:
                    self.client.publish(topic, data, timeout=self.reconnect_s, **fields)
                break
            except DisconnectedException as error:  # both are raised only before the message is stored
                self.reconnect(error)
            except TimedOutException as error:
                if self._progress() == before:
                    raise PublishFailed(
                        f"the server takes no messages for {self.reconnect_s:g} s: {self._state()}"
                    ) from error
        self.published += 1

    def watch(self) -> None:
        """Connect again if the connection is lost and messages wait. To be called often while no message is sent.

        Raises PublishFailed if messages wait and none was acknowledged for `reconnect_s`.
        """
        acknowledged = self.acknowledged
        if acknowledged == self.published:
            return
        try:
            self.client.publish_flush(timeout=0)
        except DisconnectedException as error:
            self.reconnect(error)
        except TimedOutException:
            pass
        now = time.monotonic()
        if acknowledged != self._acknowledged_before:
            self._acknowledged_before = acknowledged
            self._progress_at = now
        elif now - self._progress_at > self.reconnect_s:
            raise PublishFailed(
                f"the server acknowledged nothing for {self.reconnect_s:g} s: {self._state()}"
            )

    def _progress(self) -> tuple[int, int]:
        return self.acknowledged, self.client.stats.bytes_out

    def _state(self) -> str:
        open_ = self.store.unpersisted_count()
        return f"{self.published - open_} messages are acknowledged, {open_} are not acknowledged"

    def reconnect(self, lost: DisconnectedException | None = None) -> Resumption:
        """Connect again, with growing pauses; the client then sends the rest of its store.

        `lost` is the error that ended the connection. Raises PublishFailed after `reconnect_s`, and when other clients
        of this name have ended the connection TAKE_OVERS_MAX times.
        """
        self._let_rivals_go_first(lost)
        began = time.monotonic()
        deadline = began + self.reconnect_s
        delay_s = FIRST_DELAY_S
        while True:
            try:
                self.client.disconnect(timeout=0)
                self.client.connect(timeout=left_until(deadline))
                held = self.client.logon(timeout=left_until(deadline)).sequence or 0
                self._progress_at += time.monotonic() - began  # the outage had its own limit
                return Resumption(held, max(0, self.store.highest_unpersisted() - held))
            except (ConnectionException, TimedOutException) as error:
                if time.monotonic() + delay_s > deadline:
                    raise PublishFailed(
                        f"no connection to the server for {self.reconnect_s:g} s ({error}): {self._state()}"
                    ) from error
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _let_rivals_go_first(self, lost: DisconnectedException | None) -> None:
        wait_s = self._rivals.wait_s(lost)
        if self._rivals.take_overs >= TAKE_OVERS_MAX:
            raise PublishFailed(
                f"other clients named {self.client.name!r} ended the connection {TAKE_OVERS_MAX} times: "
                f"give each client a name of its own; {self._state()}"
            ) from lost
        time.sleep(wait_s)

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait until every message is acknowledged, with reconnects if needed.

        `timeout_s` limits the time without an acknowledgement.
        """
        while True:
            open_before = self.store.unpersisted_count()
            try:
                self.client.publish_flush(timeout=timeout_s)
                return
            except DisconnectedException as error:
                self.reconnect(error)
            except TimedOutException as error:
                if self.store.unpersisted_count() < open_before:
                    continue
                raise PublishFailed(
                    f"the server acknowledged nothing for {timeout_s:g} s: {self._state()}"
                ) from error

    def _failed(self, message: Message, reason: str) -> None:
        """Count a message that the server refused; it is not sent again."""
        with self._lock:
            self.failures += 1
            if self.first_failure is None:
                self.first_failure = f"{message.topic}: {reason}"
