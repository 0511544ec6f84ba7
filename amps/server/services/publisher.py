"""Publishing by the server itself: through a ring of its own, as a transport does for its clients.

What is published has no user, is asked no permission, and is recorded as usual. A publish is done when the core has
taken it and, if its topic is recorded, when it is durable.

The core rings a process's doorbell whenever it has done something while that process sleeps. This one would be woken
for every client's message; so it says that it sleeps only while something of its own is under way.
"""

import asyncio
import itertools
import os
import time
import traceback
from collections.abc import Callable

from amps._core import ingress as inbound
from amps._core.identity import derived_publisher_id, publisher_id
from amps._core.ingress import Ingress
from amps._core.wire import encode_frame
from amps.config import ServerConfig
from amps.messages import make_message_types
from amps.server.benches import Benches
from amps.server.eventlog import EventLog
from amps.server.records import KIND_LOGON, KIND_SPILLED_PUBLISH, control_record, raw_control_record
from amps.server.runtime import Runtime
from amps.server.topics import TopicMatcher
from amps.server.transport.core_link import CoreLink
from amps.server.transport.filters import FilterCompiler
from amps.server.transport.logons import NAME_BYTES_MAX
from amps.server.transport.spilling import write_spill
from amps.server.transport.topic_classes import make_topic_table, queue_topics

MESSAGE_BYTES_MAX = 200 * 2**20
_SLOT = 0
_NO_STORAGE = "the transaction log takes no messages now, its disk is full or takes no new files"
_RETRY_S = 0.005


class PublishFailure(Exception):
    """A message was not published; the text says why."""


class Publisher:
    """The internal publisher. Made in the services process; `begin` must be called in its event loop."""

    def __init__(
        self, config: ServerConfig, runtime: Runtime, log: EventLog, failed: Callable[[str], None]
    ) -> None:
        """`failed`: what waits here will never be told how it ended; with the traceback of the failure."""
        index = runtime.services_index
        self._config = config
        self._runtime = runtime
        self._index = index
        self._serial = time.monotonic_ns() // 1000 & 0xFFFFFFFF
        # Longer than any client's name may be: none can take it over.
        self._name = f"{config.name} actions".ljust(NAME_BYTES_MAX + 1)
        has_journal = config.transaction_log is not None
        matcher = TopicMatcher(config)
        benches = Benches(
            make_message_types(config.message_types.values()),
            config.name,
            config.group,
            log,
            functions=config.functions,
        )
        filters = FilterCompiler(config.functions)
        self._topics = make_topic_table(matcher, has_journal, benches.bench, filters, queue_topics(config))
        self._core = CoreLink(runtime, index, has_journal, self._schedule)
        self._bell = runtime.transport_bells[index]
        self._ingresses: dict[str, Ingress] = {}
        self._files = itertools.count()
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False
        self._under_way: set[asyncio.Future[None]] = set()
        self._logged_on: asyncio.Future[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._failed = failed

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer the doorbell."""
        self._loop = loop
        loop.add_reader(self._bell.fd, self._rung)

    async def publish(self, topic: str, message_type: str, data: bytes) -> None:
        """Publish one message; returns when it is taken, and durable if recorded. Raises PublishFailure."""
        async with self._one_at_a_time:
            await self._log_on()
            logged = await self._push(topic, message_type, data)
            position = self._core.ring.pushed
        done = self._expect()
        core = self._core

        def stored() -> None:
            if not done.done():
                done.set_result(None)

        def consumed() -> None:
            core.when_durable(core.written() if logged else 0, stored)

        core.when_consumed(position, consumed)
        await done

    # --- putting it into the ring ---------------------------------------------------------------------------

    async def _log_on(self) -> None:
        if self._logged_on is None:
            self._logged_on = self._expect()
            self._core.push_control(control_record((self._name, ""), KIND_LOGON, _SLOT, self._serial))
            self._schedule()
        await asyncio.shield(self._logged_on)

    async def _push(self, topic: str, message_type: str, data: bytes) -> bool:
        """Lay the message out in the ring. Returns whether its topic is recorded."""
        if not topic:
            raise PublishFailure("there is no topic; give one")
        try:
            topic.encode()
        except UnicodeEncodeError:
            raise PublishFailure("the topic is no valid text; give another one") from None
        if message_type not in self._config.message_types:
            raise PublishFailure(
                f"there is no message type {message_type[:100]!r}; give one that is configured"
            )
        entry = self._topics.entry(topic, message_type)
        entry = entry.target or entry
        if entry.refusal is not None:
            raise PublishFailure(f"the topic {topic[:100]!r} is refused: {entry.refusal}")
        frame = encode_frame({"cmd": "publish", "topic": topic}, data)
        if len(frame) - 4 > MESSAGE_BYTES_MAX:
            raise PublishFailure(f"the message is longer than the maximum of {MESSAGE_BYTES_MAX} bytes")
        if not entry.declared and not entry.discarded:
            while not self._core.declare(entry):
                await self._room()
        entry.mark_declared()
        ingress = self._ingress(message_type)
        try:
            _feed(ingress, frame)
        except PublishFailure:
            del self._ingresses[message_type]  # half a frame is in it
            raise
        # The frame stays where it is until the next one is fed, which waits for its turn.
        while (result := ingress.publish_current(entry, False)) == inbound.RING_FULL:
            await self._room()
        if result == inbound.SPILL:
            await self._spill(ingress)
        elif result == inbound.NO_STORAGE:
            ingress.keep()
            raise PublishFailure(_NO_STORAGE)
        elif result:
            raise PublishFailure(f"the message is refused ({result})")
        ingress.keep()  # gives the memory of a large message back
        return entry.logged

    async def _spill(self, ingress: Ingress) -> None:
        """A message that is too large for the ring goes in a file."""
        token = f"{self._index}.{os.getpid()}.{next(self._files)}"
        path = self._runtime.spill_path(token)
        try:
            write_spill(ingress, path)
        except OSError as error:
            raise PublishFailure(f"no room to pass a large message on: {error.strerror}") from None
        record = raw_control_record(token.encode(), KIND_SPILLED_PUBLISH, _SLOT, self._serial)
        while not self._core.ring.push(record):
            await self._room()
        ingress.finish_spill()

    async def _room(self) -> None:
        self._schedule()
        await asyncio.sleep(_RETRY_S)

    def _ingress(self, message_type: str) -> Ingress:
        """One per message type; all are one session of the core."""
        found = self._ingresses.get(message_type)
        if found is None:
            found = Ingress(
                _SLOT, self._serial, self._core.ring, self._runtime.control, self._topics, MESSAGE_BYTES_MAX
            )
            found.log_on(
                message_type,
                publisher_id(self._name),
                derived_publisher_id(self._name, self._config.name),
                b"",
                self._config.transaction_log is not None,
                conflated=False,
                checked=False,
                plain=False,
            )
            self._ingresses[message_type] = found
        return found

    # --- turns ----------------------------------------------------------------------------------------------

    def _expect(self) -> "asyncio.Future[None]":
        """Something that the core must do; until then its doorbell is answered."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _begin_anew(self) -> None:
        """The core refused a message, and takes nothing more from this session: what is under way has failed."""
        for future in self._under_way:
            if not future.done():
                future.set_exception(PublishFailure(_NO_STORAGE))
        self._serial = (self._serial + 1) & 0xFFFFFFFF
        self._ingresses.clear()
        self._logged_on = None

    def _rung(self) -> None:
        self._bell.clear()
        self._schedule()

    def _turn(self) -> None:
        self._scheduled = False
        try:
            self._work()
        except Exception:
            self._failed(traceback.format_exc())

    def _work(self) -> None:
        core = self._core
        core.view.wake()
        for kind, _, serial, *rest in core.answers():
            if kind == "logon" and serial == self._serial and self._logged_on is not None:
                assert rest[0], "another session has the name that is too long for clients"
                if not self._logged_on.done():
                    self._logged_on.set_result(None)
            elif kind == "refused" and serial == self._serial:
                self._begin_anew()
        core.view.read()
        core.push_waiting()
        core.run_waiting()
        core.publish_pushed()
        if core.durable_awaited:
            core.ask_for_durable()
        if any(not future.done() for future in self._under_way) and not core.view.fall_asleep():
            self._schedule()


def _feed(ingress: Ingress, frame: bytes) -> None:
    """Have the ingress take a whole frame, which is then its current one."""
    at = 0
    while True:
        room = ingress.receive_buffer()
        count = min(len(room), len(frame) - at)
        room[:count] = frame[at : at + count]
        ingress.received(count)
        at += count
        result = ingress.parse()
        if result == inbound.COMMAND:
            return
        if result != inbound.NEED_MORE or at == len(frame):
            raise PublishFailure(f"the message cannot be laid out ({result})")
        ingress.keep()
