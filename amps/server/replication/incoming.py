"""The sink's side of a flow: it admits the source, tells what it has, takes records, and acknowledges them.

Records go to the core in the order of the source. A frame waits until the ring has room, and the link reads no further
meanwhile: so the source is slowed down by its window. An acknowledgement names what is fully persisted here. It is sent
at the source's interval, or at once if that is 0.
"""

import asyncio
import struct
from collections.abc import Iterable
from typing import Any, Protocol

from amps._core.replication.stream import (
    WINDOW_BYTES,
    OnwardTracker,
    SinkFlow,
    SourceFlow,
    StreamError,
    TxidSet,
)
from amps._core.values.value import publisher_id
from amps.server.eventlog import EventLog
from amps.server.replication import frames, hello
from amps.server.replication.completeness import Questions
from amps.server.replication.core_sessions import CoreSession, CoreSessions, upstream_name
from amps.server.replication.frames import Content, Frame, ProtocolError, number
from amps.server.replication.hello import Flow, Identity, Refused
from amps.server.replication.link import Channel, Link
from amps.server.replication.log_access import LOG_PROBLEMS, LogAccess
from amps.server.replication.logons import Gate, admit

SETUP_S = 30.0
LOGON_S = 10.0
RESUME_S = 120.0
VECTOR_PART_BYTES = 1 << 20
CREDIT_BYTES_MIN = 1 << 20
SCAN_BYTES = 4 << 20
_CREDIT = struct.Struct("<Q")
_TXID = struct.Struct("<Q")


class Surroundings(Protocol):
    """What a flow needs of this process."""

    log: EventLog
    access: LogAccess
    core: CoreSessions
    identity: Identity
    sources: list[SourceFlow | None]
    declared_names: set[int]

    async def peer_config(self, link: Link, channel: Channel) -> Any:
        """Send this instance's CONFIG if it was not sent, and wait for the other's."""

    def spill(self, session: CoreSession, record: bytes) -> bool:
        """Pass a record that is too large for the ring in a file. False: there is no room now. Raises OSError."""

    def end_earlier(self, incoming: "Incoming") -> None:
        """The upstream begins a flow: end an earlier one of the same destination. Raises Refused (DUPLICATE_LINK)."""

    def partners(self) -> list[str] | None:
        """The names of the instances that send to this one what they have; None: not all of them are connected."""

    def incoming_began(self, incoming: "Incoming") -> None:
        """The flow is there."""

    def incoming_ended(self, incoming: "Incoming") -> None:
        """It is not there any more."""


class Incoming:
    """One flow from an upstream, on a channel on which the source has sent HELLO or OPEN."""

    def __init__(
        self, around: Surroundings, channel: Channel, upstream: Identity, flow: Flow, gate: Gate
    ) -> None:
        self.upstream = upstream
        self.flow = flow
        self.channel = channel
        self.began = False
        self.end: Refused | None = None
        """Why a flow that began has ended."""
        self._around = around
        self._gate = gate
        self._user = ""
        self._session: CoreSession | None = None
        self._sink: SinkFlow
        self._tracker: OnwardTracker
        self._closed = False
        """Whether the source sends nothing until it has credit."""
        self._granted = 0
        self._sent: TxidSet | None = None
        self._ack_due_s = 0.0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._questions = Questions()
        self._ending = False
        """Whether the flow is about to end: what follows a frame that was not taken whole must not be taken."""
        self._over = False
        self._over_for_core = False

    async def run(self) -> Refused:
        """Run the flow until it ends. Return why. Raises Refused if it did not begin, ProtocolError."""
        around, channel = self._around, self.channel
        try:
            async with asyncio.timeout(LOGON_S):
                self._user = await admit(channel, self._gate)
            around.end_earlier(self)
            async with asyncio.timeout(SETUP_S):
                await around.peer_config(channel.link, channel)
                await self._expect_valid()
            async with asyncio.timeout(RESUME_S):
                await self._resume()
        except TimeoutError:
            self._finish()
            raise Refused(hello.TIMEOUT, "the flow could not be set up in time") from None
        except LOG_PROBLEMS as problem:
            self._finish()
            raise Refused(hello.STORAGE, f"the log cannot be read: {problem}") from None
        except BaseException:
            self._finish()
            raise
        try:
            self.end = await channel.wait_end()
            return self.end
        finally:
            self._finish()

    async def _expect_valid(self) -> None:
        result = Content(await self.channel.expect(frames.CONFIG_RESULT))
        if not result.flag("ok"):
            self._around.log.log("1E-0008", client=self.flow.client_name, peer=self.upstream.name)
            raise Refused(hello.VALIDATION, "the source refuses its configuration", by_peer=True)

    async def _resume(self) -> None:
        around, channel, core = self._around, self.channel, self._around.core
        name = upstream_name(self.upstream, around.identity)
        session, last_txid = await core.begin_session(name)
        self._session = session
        session.refused = self._refused
        vector = await core.vector(session)
        # No record before `begin` waits for a destination. And the log has all of the upstream up to `last_txid` before
        # the position that is durable now.
        durable = core.durable
        begin = min([durable, *(each.acked_position for each in around.sources if each is not None)])
        # A source that sends to a full disk would send the same records again and again (25.69).
        self._closed = core.refuses
        channel.send_json(
            frames.RESUME,
            {
                "last_txid": number(last_txid),
                "peer_epoch": around.identity.epoch,
                "vector_count": len(vector) // 16,
                **({"window": 0} if self._closed else {}),
            },
        )
        for at in range(0, len(vector), VECTOR_PART_BYTES):
            channel.send(frames.RESUME_VECTOR, vector[at : at + VECTOR_PART_BYTES])
        upstream_id = publisher_id(name)
        hop = "\t".join((self.upstream.name, self.upstream.group, self.upstream.epoch)).encode()
        self._sink = SinkFlow(
            core.link.ring,
            session.slot,
            session.serial,
            around.access.topics,
            upstream_id,
            hop,
            core.declare_topic,
            core.declare_name,
            lambda record: around.spill(session, record),
            lambda topic, message_type: self._gate.allows_topic(self._user, topic),
            around.declared_names,
            last_txid,
        )
        self._tracker = OnwardTracker(
            around.access.cursor_before(begin),
            upstream_id,
            around.sources,
            around.access.paths,
            upstream=(self.upstream.name, self.upstream.epoch),
            cursor_at=around.access.cursor_before,
            trusted_from=core.link.written(),
        )
        self._tracker.reach(last_txid, durable)
        answer = Content(await channel.expect(frames.RESUME_ACK))
        gap = answer.values.get("gap")
        client = self.flow.client_name
        if isinstance(gap, list) and len(gap) == 2:
            around.log.log("1E-0006", client=client, first=str(gap[0])[:20], last=str(gap[1])[:20])
        self.began = True
        around.incoming_began(self)
        channel.handler = self._take
        channel.produce = self._produce

    def _refused(self, reason: str) -> None:
        """The core takes no more: its disk is full, or it found an error. The source begins again later."""
        # Records that the core has read since were dropped, so none of them may be acknowledged.
        self._over_for_core = True
        if reason == "malformed":
            self._around.log.log("1E-0022", client=self.flow.client_name)
            self._end(Refused(hello.PROTOCOL, "the core refused a record as malformed"))
        else:
            self._end(Refused(hello.STORAGE, hello.NO_ROOM))

    def _end(self, end: Refused) -> None:
        self._ending = True
        if not self._over:
            self.channel.end_flow(end)

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        if self._session is not None:
            self._around.core.end_session(self._session)
        if self.began:
            self._around.incoming_ended(self)

    # --- while it runs --------------------------------------------------------------------------------------

    async def _take(self, frame: Frame) -> None:
        if self._ending:
            return
        if frame.type in (frames.DATA, frames.NAMES):
            await self._take_records(frame)
        elif frame.type == frames.RESYNC_DONE:
            self._around.log.log("1E-0009", client=self.flow.client_name)
        elif frame.type == frames.COMPLETE:
            self._take_answer()
        elif frame.type != frames.MODE:
            raise ProtocolError(f"{frame.name} to the sink of a running flow")

    def _take_answer(self) -> None:
        """All that was in the log of the source when this side asked has come before."""
        around = self._around
        age_s = self._questions.answered(asyncio.get_running_loop().time())
        assert self._session is not None
        around.core.tell_complete(self._session, self.upstream.name, age_s, around.partners())

    async def _take_records(self, frame: Frame) -> None:
        around, sink = self._around, self._sink
        try:
            taken = sink.take(frame.type, frame.payload)
            while not taken:
                await around.core.room()
                if self._over or self.channel.handler is None:
                    return
                taken = sink.go_on()
        except StreamError as problem:
            raise ProtocolError(str(problem)) from None
        except OSError as problem:
            self._end(Refused(hello.STORAGE, f"no room to pass a large message on: {problem.strerror}"))
            return
        around.core.link.publish_pushed()
        for txid, reason in sink.take_rejections():
            around.log.log("1E-0007", client=self.flow.client_name, txid=txid, reason=reason)
            self.channel.send(frames.REJECT, _TXID.pack(txid) + reason.encode("utf-8", "replace")[:1000])
        if self._credit >= CREDIT_BYTES_MIN:
            self.channel.link.wake()

    def look(self) -> None:
        """Let the source send, if it does not and the log takes records again. Ask whether it has sent all."""
        if self._questions.due(asyncio.get_running_loop().time()):
            self.channel.send(frames.COMPLETE)
        if self._closed and not self._around.core.refuses:
            self._closed = False
            self._granted -= WINDOW_BYTES
            self.channel.link.wake()

    def step(self, consumed: int, written: int, durable: int) -> bool:
        """Note the core's progress: `consumed` of the ring, after which `written` was read. Return whether there is
        more to do at once.
        """
        if not self.began or self._over or self._over_for_core:
            return False
        self._tracker.reach(self._sink.consumed(consumed), written)
        try:
            more = not self._tracker.scan(durable, SCAN_BYTES)
        except LOG_PROBLEMS as problem:
            self._end(Refused(hello.STORAGE, f"the log cannot be read: {problem}"))
            return False
        self._schedule_ack()
        return more

    def _schedule_ack(self) -> None:
        if not self.flow.ack_interval_ms:
            self.channel.link.wake()
        elif self._ack_timer is None:
            loop = asyncio.get_running_loop()
            due_s = self._ack_due_s
            self._ack_timer = loop.call_at(max(due_s, loop.time()), self._ack_is_due, due_s)

    def _ack_is_due(self, due_s: float) -> None:
        self._ack_timer = None
        if due_s != self._ack_due_s:
            self._schedule_ack()  # an acknowledgement was sent meanwhile: the next one is due later
            return
        # The loop counts whole milliseconds, so that its time may be a moment before the one it was asked to wait for.
        self._ack_due_s = 0.0
        self.channel.link.wake()

    def _produce(self) -> Iterable[bytes]:
        stream = self.channel.stream
        made: list[bytes] = []
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._ack_due_s:
            acknowledged = self._tracker.acknowledged()
            if acknowledged != self._sent:
                self._sent = acknowledged
                self._ack_due_s = now_s + self.flow.ack_interval_ms / 1000
                made.append(frames.encode(frames.ACK, acknowledged.to_payload(), stream))
        credit = self._credit
        if credit >= CREDIT_BYTES_MIN:
            made.append(frames.encode(frames.CREDIT, _CREDIT.pack(credit), stream))
            self._granted += credit
        return made

    @property
    def _credit(self) -> int:
        """Bytes to grant: those of the records that were taken. What is around records in a frame does not count."""
        return self._sink.taken_bytes - self._granted

    def finish_acks(self) -> None:
        """Acknowledge what can be acknowledged now: this instance stops."""
        self._ack_due_s = 0.0
        self.channel.link.wake()

    @property
    def scanned_position(self) -> int:
        """Log position up to which it has followed the log; it has begun."""
        return self._tracker.scanned_position

    @property
    def wants_durable(self) -> bool:
        """Whether it waits for the durable watermark."""
        return self.began
