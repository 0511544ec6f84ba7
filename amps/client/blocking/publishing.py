"""Publishing. A publish waits for no answer, only for a server that does not read or a full publish store.

A publish never succeeds in part. If it raises, the message was neither sent nor stored. If it returns, the message
was sent or is queued for sending, and is in the store if there is one. Only an interrupt (Ctrl-C) may come when the
message is in the store already; it is sent then.

The usual case is one call of `Outbox.publish`, which the client makes itself; what follows on it is here.
"""

import time

from amps.client.blocking.commanding import Commands
from amps.client.blocking.runtime import Runtime
from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.errors import (
    AMPSException,
    DisconnectedException,
    StoreFullException,
    TimedOutException,
)
from amps.client.frontend.calls import cut_off
from amps.client.frontend.publishes import PublishTemplates
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.command import Command, PublishTemplate, check_timeout


class Publisher:
    """Publishes, and waits until everything is persisted."""

    def __init__(self, runtime: Runtime, commands: Commands, settings: ClientSettings) -> None:
        self.templates = PublishTemplates(runtime.wire.engine.outbox)
        self._wire = runtime.wire
        self._waits = runtime.waits
        self._sender = runtime.sender
        self._engine = runtime.wire.engine
        self._outbox = runtime.wire.engine.outbox
        self._commands = commands
        self._settings = settings
        self._store = settings.publish_store

    def follow(self, result: int, topic: str, data: Data | object, timeout: Timeout) -> int:
        """Go on after `Outbox.publish` with a negative result; return the sequence number."""
        if result < -1:
            try:
                self._sender.send_publish()
            except BaseException:
                self._sender.signal()
                raise
            return -2 - result
        return self.publish(self.templates.of(topic), data, timeout)

    def publish(self, template: PublishTemplate, data: Data | object, timeout: Timeout) -> int:
        """Publish a body with a prepared header; return the sequence number."""
        if timeout is not DEFAULT:
            check_timeout(timeout)
        body = data if type(data) is bytes else self._commands.encode(data)
        engine, outbox = self._engine, self._outbox
        deadline: float | None = None
        if outbox.blocked:
            deadline = self._settings.deadline(timeout)
            self._sender.make_room(template.command, deadline)
        try:
            try:
                with self._wire.lock:
                    sequence = engine.publish_body(template, body)
            except (StoreFullException, DisconnectedException):
                deadline = deadline or self._settings.deadline(timeout)
                sequence = self._commands.call_engine(
                    lambda now: engine.publish_body(template, body), template.command, deadline
                )
            except AMPSException:
                self._wire.check_usable()
                raise
            if self._store is not None:
                self._store.sync(sequence)
            outbox.note_publish()
            if not (outbox.burst and outbox.signalled):  # else the sending thread sends it, too
                self._sender.send_publish()
        except BaseException:
            if engine.has_outgoing:
                self._sender.signal()  # an interrupt: what the engine has accepted is sent
            raise
        return sequence

    def flush(self, timeout: Timeout) -> None:
        """Wait until everything published before is acknowledged as persisted; there is a publish store."""
        store, waits, engine = self._store, self._waits, self._engine
        assert store is not None
        self._wire.check_may_wait("publish_flush")
        target = store.highest_unpersisted()
        if target == 0:
            return
        if not (engine.connected or engine.recovers):
            raise cut_off(engine, f"publish_flush: not connected, {store.unpersisted_count()} unpersisted")
        deadline = self._settings.deadline(timeout)
        self._sender.make_room("publish_flush", deadline)
        try:
            with self._wire.lock:  # the server then sends its conflated acknowledgements at once
                nudge = engine.execute(Command("flush"), None, time.monotonic(), awaited=AckType.PERSISTED)
        except DisconnectedException:
            if not engine.recovers:
                raise
            nudge = None  # the next server gets the messages
        self._sender.after_call()

        def drained() -> bool:
            return not 0 < store.lowest_unpersisted() <= target

        def over() -> bool:
            return not (engine.connected or engine.recovers)

        token = object()
        try:
            waits.begin(token)
            waits.until_discarded(lambda: drained() or over(), deadline)
        finally:
            waits.waiting.discard(token)
            if nudge is not None:
                self._commands.abandon(nudge)
        if not drained():
            count = store.unpersisted_count()
            if over():
                raise cut_off(engine, f"publish_flush: connection lost, {count} unpersisted")
            raise TimedOutException(f"publish_flush: {count} messages not persisted in time")
