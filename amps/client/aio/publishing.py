"""Publishing. A publish waits for no answer, only for a server that does not read or a full publish store.

It suspends before the message is accepted, so a cancelled publish has not published. Only a publish store that syncs
each message is awaited afterwards.

The usual case is one call of `Outbox.publish`, which the client makes itself; what follows on it is here.
"""

import time

from amps.client.aio.commanding import Commands
from amps.client.aio.link import Link
from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.errors import TimedOutException
from amps.client.frontend.calls import cut_off
from amps.client.frontend.publishes import PublishTemplates
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.command import Command, PublishTemplate, check_timeout
from amps.client.protocol.engine_types import Phase
from amps.client.protocol.store_interfaces import sync_waits


class Publisher:
    """Publishes, and waits until everything is persisted."""

    def __init__(self, link: Link, commands: Commands, settings: ClientSettings) -> None:
        self.templates = PublishTemplates(link.outbox)
        self._link = link
        self._engine = link.engine
        self._outbox = link.outbox
        self._commands = commands
        self._settings = settings
        self._store = settings.publish_store

    async def publish(self, template: PublishTemplate, data: Data | object, timeout: Timeout) -> int:
        """Publish a body with a prepared header; return the sequence number."""
        if timeout is not DEFAULT:
            check_timeout(timeout)
        link, store = self._link, self._store
        link.check_usable()
        body = data if type(data) is bytes else self._commands.encode(data)
        deadline = self._settings.deadline(timeout)
        await link.make_room(template.command, deadline)
        sequence = await self._commands.call_engine(
            lambda now: self._publish(template, body), template.command, deadline
        )
        if store is not None and self._outbox.log is None and sync_waits(store):
            assert link.loop is not None
            await link.loop.run_in_executor(None, store.sync, sequence)
        return sequence

    def publish_nowait(self, template: PublishTemplate, data: Data | object) -> int:
        """Publish now, or raise BufferError, StoreFullException or DisconnectedException."""
        self._link.check_usable()
        if self._outbox.blocked:
            raise BufferError("publish_nowait: the server does not read what was sent before")
        return self._publish(template, self._commands.encode(data))

    def _publish(self, template: PublishTemplate, body: bytes) -> int:
        sequence = self._engine.publish_body(template, body)
        self._outbox.note_publish()
        self._link.send_burst()
        return sequence

    async def flush(self, timeout: Timeout) -> None:
        """Wait until everything published before is acknowledged as persisted; there is a publish store."""
        store, link, engine = self._store, self._link, self._engine
        assert store is not None
        link.check_usable()
        target = store.highest_unpersisted()
        if target == 0:
            return
        deadline = self._settings.deadline(timeout)
        if not (engine.connected or engine.recovers):
            raise cut_off(engine, f"publish_flush: not connected, {store.unpersisted_count()} unpersisted")
        await link.make_room("publish_flush", deadline)
        if engine.phase is Phase.READY:  # the server then sends its conflated acknowledgements at once
            engine.execute(Command("flush"), None, time.monotonic(), awaited=AckType.PERSISTED)
            link.after_call()
        while 0 < store.lowest_unpersisted() <= target:
            if not await link.waits.wait_in(link.waits.discarded, deadline):
                raise TimedOutException(f"publish_flush: {store.unpersisted_count()} messages not persisted in time")
            if 0 < store.lowest_unpersisted() <= target and not (engine.connected or engine.recovers):
                raise cut_off(engine, f"publish_flush: connection lost, {store.unpersisted_count()} unpersisted")
