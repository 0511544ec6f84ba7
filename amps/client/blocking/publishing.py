"""Publishing. A publish waits for no answer, only for a server that does not read or a full publish store.

A publish never succeeds in part. If it raises, the message was neither sent nor stored. If it returns, the message
was sent or is queued for sending, and is in the store if there is one.
"""

import time

from amps.client.blocking.commanding import Commanding
from amps.client.blocking.sending import left_until
from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.errors import (
    AMPSException,
    DisconnectedException,
    StoreFullException,
    TimedOutException,
)
from amps.client.frontend.calls import publish_template
from amps.client.protocol.command import (
    Command,
    PublishTemplate,
    check_timeout,
)
from amps.client.protocol.store_interfaces import PublishStore

MAX_TEMPLATES = 10_000


class Publishing(Commanding):
    """publish, delta_publish, publish_flush. The client's constructor sets the attributes below."""

    publish_store: PublishStore | None
    _templates: dict[str, PublishTemplate]

    @property
    def unpersisted_count(self) -> int:
        """The number of publishes and deletes in the publish store that the server has not acknowledged."""
        return self.publish_store.unpersisted_count() if self.publish_store is not None else 0

    def publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Publish a message; return its sequence number, 0 without a publish store. Waits for no answer.

        `expiration` is in seconds. Raises StoreException if a publish store in files cannot keep the message, or
        StoreFullException if the store is full and has on_full="raise".

        If the server does not read the bytes sent before, or the publish store is full, the call waits, at most
        `timeout` seconds. Then it raises TimedOutException, and the message was neither sent nor stored: it may be
        published again. Bytes that a slow server has not read when the call returns are sent by a thread of the client.
        """
        if expiration is None and correlation_id is None and sow_key is None:
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            if sequence < -1:
                self._send_publish()
                return -2 - sequence
            template = self._templates.get(topic)
            if template is None:
                template = self._templates[topic] = PublishTemplate("publish", topic)
                self._outbox.learn(topic, template.header)
                if len(self._templates) > MAX_TEMPLATES:
                    self._templates.clear()
        else:
            template = publish_template("publish", topic, expiration, correlation_id, sow_key)
        return self._publish(template, data, timeout)

    def delta_publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Publish changes to a record; otherwise like `publish`."""
        template = publish_template("delta_publish", topic, expiration, correlation_id, sow_key)
        return self._publish(template, data, timeout)

    def _publish(self, template: PublishTemplate, data: Data | object, timeout: Timeout) -> int:
        if timeout is not DEFAULT:
            check_timeout(timeout)
        body = data if type(data) is bytes else self._encode(data)
        store = self.publish_store
        engine = self._engine
        deadline: float | None = None
        transport = self._transport
        if transport is not None and transport.behind:
            deadline = self._deadline(timeout)
            self._make_room(template.command, deadline)
        try:
            with self._lock:
                sequence = engine.publish_body(template, body)
        except StoreFullException:
            sequence = self._publish_when_room(template, body, deadline or self._deadline(timeout))
        except DisconnectedException as refused:
            self._check_usable()
            deadline = deadline or self._deadline(timeout)
            self._await_server(refused, deadline)
            return self._publish(template, body, left_until(deadline))
        except AMPSException:
            self._check_usable()
            raise
        if store is not None:
            store.sync(sequence)
        self._outbox.note_publish()
        self._send_publish()
        return sequence

    def _publish_when_room(self, template: PublishTemplate, body: bytes, deadline: float | None) -> int:
        """Publish when the full publish store has room: wait for acknowledgements if that is allowed and possible."""
        store = self.publish_store
        assert store is not None
        if store.on_full != "wait" or self._must_not_wait():
            with self._lock:
                return self._engine.publish_body(template, body)
        self._send_outgoing()
        self._begin_wait()  # the acks may follow messages that fill a stream's buffer
        try:
            while True:
                seen = self._discards
                try:
                    with self._lock:
                        return self._engine.publish_body(template, body)
                except StoreFullException as full:
                    with self._discarded:
                        if not self._discarded.wait_for(
                            lambda seen=seen: self._discards != seen,  # type: ignore[misc]
                            left_until(deadline),
                        ):
                            raise TimedOutException(
                                f"{template.command}: the publish store had no room in time, "
                                f"{self.unpersisted_count} messages in it are not persisted"
                            ) from full
        finally:
            self._end_wait()

    def publish_flush(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything published before is acknowledged as persisted; without a store, flush().

        The limit of `timeout` seconds includes the wait for the server to read the bytes sent before. Raises
        TimedOutException after it; the messages stay in the store. Messages that the server refuses are reported to the
        failed write handler, not here.
        """
        store = self.publish_store
        if store is None:
            self.flush(timeout=timeout)
            return
        self._check_may_wait("publish_flush")
        target = store.highest_unpersisted()
        if target == 0:
            return
        engine = self._engine
        if not (engine.connected or engine.recovers):
            raise self._cut_off(f"publish_flush: not connected, {self.unpersisted_count} unpersisted")
        deadline = self._deadline(timeout)
        self._make_room("publish_flush", deadline)
        try:
            with self._lock:  # the server then sends its conflated acknowledgements at once
                nudge = engine.execute(Command("flush"), None, time.monotonic(), awaited=AckType.PERSISTED)
        except DisconnectedException:
            if not engine.recovers:
                raise
            nudge = None  # the next server gets the messages
        self._after_call()

        def drained() -> bool:
            return not 0 < store.lowest_unpersisted() <= target

        def over() -> bool:
            return not (engine.connected or engine.recovers)

        self._begin_wait()
        try:
            with self._discarded:
                self._discarded.wait_for(lambda: drained() or over(), left_until(deadline))
        finally:
            self._end_wait()
            if nudge is not None:
                self._abandon(nudge)
        if not drained():
            count = self.unpersisted_count
            if over():
                raise self._cut_off(f"publish_flush: connection lost, {count} unpersisted")
            raise TimedOutException(f"publish_flush: {count} messages not persisted in time")

    def _cut_off(self, what: str) -> DisconnectedException:
        """Return the exception for a lost connection, with the error that ended the last one."""
        cause = self._engine.lost_by
        if cause is None:
            return DisconnectedException(what)
        return DisconnectedException(f"{what}: {cause}", reason=cause.reason, message=cause.message)
