"""Publishing by the server itself: through a ring of its own, as a transport does for its clients.

Its messages have no user, need no permission, and are recorded as usual. A publish is complete when the core has read
it and, if its topic is recorded, when it is durable.

A part of the server that must publish every message exactly once, also over failures, has a session under a name of its
own and numbers its messages, as any client can. The log has the last number, and duplicates are dropped. Numbers must
arrive in their order. So when the core refuses a message, it accepts no more from that session until the session has
logged on again; the answer has the number from which to continue.

The core wakes a sleeping process whenever it has done work. That would wake this process for every client's message; so
it sets its sleep flag only while it waits for the core itself.
"""

import asyncio
import hashlib
import itertools
import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from amps._core.values.value import derived_publisher_id, publisher_id
from amps._core.wire import ingress as inbound
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import ACTION_ACKNOWLEDGE, AckList, Ingress
from amps._core.wire.topics import TopicEntry
from amps.config import ServerConfig
from amps.messages import make_message_types
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.records import (
    KIND_LOGON,
    KIND_SPILLED_PUBLISH,
    NAME_BYTES_MAX,
    RESERVED_NAMES,
    control_record,
    raw_control_record,
)
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.filters import FilterCompiler
from amps.server.shared.sow_topics import make_sow_rules
from amps.server.shared.spill_files import write_spill
from amps.server.shared.topic_classes import make_topic_table, queue_topics
from amps.server.topics import TopicMatcher

MESSAGE_BYTES_MAX = 200 * 2**20
_NO_STORAGE = "the transaction log accepts no messages now: its disk is full, or files cannot be made"
_RETRY_S = 0.005
_TOKEN_MAX = 0xFFFFFFFF


class PublishFailure(Exception):
    """A message was not published; the text has the reason."""


class StorageUnavailable(PublishFailure):
    """The message can be published when the transaction log accepts messages again."""


class Session:
    """A name under which messages are published. Made by Publisher."""

    def __init__(self, name: str, slot: int) -> None:
        self.name = name
        self.slot = slot
        self.serial = time.monotonic_ns() // 1000 & 0xFFFFFFFF
        self.ingresses: dict[str, Ingress] = {}
        self.under_way: set[asyncio.Future[Any]] = set()
        self.logon: asyncio.Future[tuple[int, int]] | None = None
        """The last number in the log, and the log position at the logon; None: the session must log on first."""

    def begin_anew(self) -> None:
        """Fail all pending publishes and begin again, because the core refused a message and accepts no more."""
        for future in list(self.under_way):
            if not future.done():
                future.set_exception(StorageUnavailable(_NO_STORAGE))
        self.serial = (self.serial + 1) & 0xFFFFFFFF
        self.ingresses.clear()
        self.logon = None


class Publisher:
    """The internal publisher. Made in the services process; `begin` must be called in its event loop."""

    def __init__(
        self, config: ServerConfig, runtime: Runtime, log: EventLog, failed: Callable[[str], None]
    ) -> None:
        """`failed` receives the traceback when pending publishes can never complete."""
        index = runtime.services_index
        self._config = config
        self._runtime = runtime
        self._index = index
        has_journal = config.transaction_log is not None
        matcher = TopicMatcher(config)
        types = make_message_types(config.message_types.values())
        self.evaluations = EvaluationContexts(
            types,
            config.name,
            config.group,
            log,
            functions=config.functions,
        )
        self.filters = FilterCompiler(config.functions)
        self._topics = make_topic_table(
            matcher,
            has_journal,
            self.evaluations.of_type,
            self.filters,
            queue_topics(config),
            make_sow_rules(config, types),
        )
        self._core = CoreLink(runtime, index, has_journal, self._schedule)
        self._wake_up = runtime.transport_wake_ups[index]
        self._files = itertools.count()
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False
        self._sessions: list[Session] = []
        self._own = self.session("actions")
        self._pushed: deque[tuple[int, Callable[[], None]]] = deque()  # by place in the ring
        self._one_at_a_time = asyncio.Lock()
        self._deletions: dict[int, asyncio.Future[tuple[int, list[int]]]] = {}  # by token
        self._token = 0
        self._failed = failed

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle wake-ups from now on."""
        self._loop = loop
        loop.add_reader(self._wake_up.fd, self._woken)

    def session(self, name: str) -> Session:
        """Make a session, under a name that describes its purpose."""
        text = f"{RESERVED_NAMES}{self._config.name} {name}"
        if len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
            text = RESERVED_NAMES + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        made = Session(text, len(self._sessions))
        self._sessions.append(made)
        return made

    @property
    def core(self) -> CoreLink:
        """The ring of this process, and its view of the log."""
        return self._core

    async def publish(self, topic: str, message_type: str, data: bytes, delay_ms: int | None = None) -> None:
        """Publish one message, and return when it is read, and durable if recorded. Raises PublishFailure.

        delay_ms: after which time queues deliver it; None: at once.
        """
        await (await self.push(self._own, topic, message_type, data, delay_ms=delay_ms))

    async def push(
        self,
        session: Session,
        topic: str,
        message_type: str,
        data: bytes,
        sequence: int = 0,
        delay_ms: int | None = None,
    ) -> "asyncio.Future[None]":
        """Push a message, as number `sequence` of its session, which has logged on. Raises PublishFailure.

        The future is done when the publish is complete. If it raises StorageUnavailable, or this method does, the
        session must log on again: its pending messages may be published or not.
        """
        async with self._one_at_a_time:
            if not sequence:
                await self._log_on(session)
            serial = session.serial
            if session.logon is None or not session.logon.done():
                raise StorageUnavailable(_NO_STORAGE)
            try:
                logged = await self._lay_out(session, topic, message_type, data, sequence, delay_ms)
            except StorageUnavailable:
                if sequence:
                    session.begin_anew()
                raise
            return self._when_stored(session, serial, logged)

    def _when_stored(self, session: Session, serial: int, logged: bool) -> "asyncio.Future[None]":
        """A future that is done when the core has read the last pushed record, and it is durable if it is `logged`."""
        if session.serial != serial:  # the core has refused an earlier message, and drops this one
            raise StorageUnavailable(_NO_STORAGE)
        done: asyncio.Future[None] = self._expect(session)
        core = self._core

        def stored() -> None:
            if not done.done():
                done.set_result(None)

        self._pushed.append(
            (core.ring.pushed, lambda: core.when_durable(core.written() if logged else 0, stored))
        )
        self._schedule()
        return done

    async def log_on(self, session: Session) -> int:
        """Log on in order to publish with numbers. Return the last number that is durable in the log; 0: none."""
        last_sequence, position = await self._log_on(session)
        durable: asyncio.Future[None] = self._expect(session)

        def stored() -> None:
            if not durable.done():
                durable.set_result(None)

        self._core.when_durable(position, stored)
        await durable
        return last_sequence

    def entry(self, topic: str, message_type: str) -> TopicEntry:
        """The entry of a topic."""
        return self._topics.entry(topic, message_type)

    async def acknowledge(self, entry: TopicEntry, acks: AckList) -> None:
        """Acknowledge messages of the queue with a topic, and wait until that is durable. Raises PublishFailure."""
        session, ring = self._own, self._core.ring
        async with self._one_at_a_time:
            await self._log_on(session)
            serial = session.serial
            for each in (entry,) if entry.target is None else (entry.target, entry):
                await self.declare(each)
            records = self._ingress(session, entry.message_type).acknowledgement_records(
                acks, entry, ACTION_ACKNOWLEDGE, 0, 0, 0, 0
            )
            if isinstance(records, int):
                raise StorageUnavailable(_NO_STORAGE)
            for record in records:
                while not ring.push(record):
                    await self._room()
            done = self._when_stored(session, serial, True)
        await done

    async def delete(self, entry: TopicEntry, keys: bytes) -> tuple[int, list[int]]:
        """Delete records of a SOW topic: a RequestedKey (amps/_core/sow/slots.pxd) for each, ascending, at most
        REMOVED_KEYS_MAX. Return how many are deleted, which is durable then if the topic is recorded, and the keys that
        have changed meanwhile. Raises PublishFailure.
        """
        session, ring = self._own, self._core.ring
        async with self._one_at_a_time:
            await self._log_on(session)
            serial = session.serial
            await self.declare(entry)
            token = self._token = self._token % _TOKEN_MAX + 1
            record = self._ingress(session, entry.message_type).removal_record(entry, keys, token, 0)
            if isinstance(record, int):
                raise StorageUnavailable(_NO_STORAGE)
            while not ring.push(record):
                await self._room()
            done = self._when_stored(session, serial, entry.logged)
            answer: asyncio.Future[tuple[int, list[int]]] = self._expect(session)
            self._deletions[token] = answer
            answer.add_done_callback(lambda _: self._deletions.pop(token))
        found = await answer
        await done
        return found

    # --- pushing to the ring --------------------------------------------------------------------------------

    async def _log_on(self, session: Session) -> tuple[int, int]:
        if session.logon is None:
            session.logon = self._expect(session)
            self._core.push_control(
                control_record((session.name, ""), KIND_LOGON, session.slot, session.serial)
            )
            self._schedule()
        return await asyncio.shield(session.logon)

    async def _lay_out(
        self,
        session: Session,
        topic: str,
        message_type: str,
        data: bytes,
        sequence: int,
        delay_ms: int | None,
    ) -> bool:
        """Write the message to the ring. Return whether its topic is recorded."""
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
        fields: dict[str, str | int] = {"cmd": "publish", "topic": topic}
        if sequence:
            fields["seq"] = sequence
        if delay_ms is not None:
            fields["delay"] = delay_ms
        frame = encode_frame(fields, data)
        if len(frame) - 4 > MESSAGE_BYTES_MAX:
            raise PublishFailure(f"the message is longer than the maximum of {MESSAGE_BYTES_MAX} bytes")
        await self.declare(entry)
        ingress = self._ingress(session, message_type)
        try:
            _feed(ingress, frame)
        except PublishFailure:
            del session.ingresses[message_type]  # half a frame is in it
            raise
        # The frame stays current until the next one is fed, which waits for the lock.
        while (result := ingress.publish_current(entry, False)) == inbound.RING_FULL:
            await self._room()
        if result == inbound.SPILL:
            await self._spill(session, ingress)
        elif result in (inbound.NO_STORAGE, inbound.AFTER_REFUSAL):
            ingress.keep()
            raise StorageUnavailable(_NO_STORAGE)
        elif result:
            raise PublishFailure(f"the message is refused ({result})")
        ingress.keep()  # frees the memory of a large message
        return entry.logged

    async def declare(self, entry: TopicEntry) -> None:
        """Make sure that the core knows a topic's number."""
        if not entry.declared and not entry.discarded:
            while not self._core.declare(entry):
                await self._room()
        entry.mark_declared()

    async def _spill(self, session: Session, ingress: Ingress) -> None:
        """Pass a message that is too large for the ring in a file."""
        token = f"{self._index}.{os.getpid()}.{next(self._files)}"
        path = self._runtime.spill_path(token)
        try:
            write_spill(ingress, path)
        except OSError as error:
            raise StorageUnavailable(f"no room to pass a large message on: {error.strerror}") from None
        record = raw_control_record(token.encode(), KIND_SPILLED_PUBLISH, session.slot, session.serial)
        while not self._core.ring.push(record):
            await self._room()
        ingress.finish_spill()

    async def _room(self) -> None:
        self._schedule()
        await asyncio.sleep(_RETRY_S)

    def _ingress(self, session: Session, message_type: str) -> Ingress:
        """The ingress for a message type. All of a session belong to one session of the core."""
        found = session.ingresses.get(message_type)
        if found is None:
            found = Ingress(
                session.slot,
                session.serial,
                self._core.ring,
                self._runtime.control,
                self._topics,
                MESSAGE_BYTES_MAX,
            )
            found.log_on(
                message_type,
                publisher_id(session.name),
                derived_publisher_id(session.name, self._config.name),
                b"",
                self._config.transaction_log is not None,
                conflated=False,
                checked=False,
                plain=False,
            )
            session.ingresses[message_type] = found
        return found

    # --- turns ----------------------------------------------------------------------------------------------

    def _expect(self, session: Session) -> "asyncio.Future[Any]":
        """A future for an action of the core. While it is pending, the core's wake-ups are used."""
        future: asyncio.Future[Any] = self._loop.create_future()
        session.under_way.add(future)
        future.add_done_callback(session.under_way.discard)
        return future

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _woken(self) -> None:
        self._wake_up.clear()
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
        # The ring's tail is read before the answers: answers to the records before it are then processed first.
        core.view.read()
        consumed = core.consumed()
        for kind, slot, serial, *rest in core.answers():
            session = self._sessions[slot]
            if serial != session.serial:
                continue
            if kind == "logon" and session.logon is not None:
                assert rest[0], "another session has the name that is too long for clients"
                if not session.logon.done():
                    session.logon.set_result((rest[1], rest[2]))
            elif kind == "sow_deleted":
                answer = self._deletions.get(rest[0])
                if answer is not None and not answer.done():
                    answer.set_result((rest[1], rest[2]))
            elif kind == "refused":
                session.begin_anew()
        core.push_waiting()
        while self._pushed and self._pushed[0][0] <= consumed:
            self._pushed.popleft()[1]()
        core.run_waiting()
        core.publish_pushed()
        if core.durable_awaited:
            core.ask_for_durable()
        waiting = any(not future.done() for session in self._sessions for future in session.under_way)
        if waiting and not core.view.fall_asleep():
            self._schedule()


def _feed(ingress: Ingress, frame: bytes) -> None:
    """Pass a whole frame to the ingress, whose current frame it then is."""
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
            raise PublishFailure(f"the message cannot be encoded ({result})")
        ingress.keep()
