"""The source's side of a flow: logon, validation, the start in the log, then records until the flow ends.

The steps before the first record are a coroutine: each waits for one frame of the sink. Then the link's writer asks
`_produce` for frames whenever the connection takes more, and `_take` gets acknowledgements and credits.
"""

import asyncio
import struct
from collections.abc import Iterable
from typing import Protocol

from amps._core.replication.stream import BATCH_BYTES, WINDOW_BYTES, StreamError, TxidSet
from amps.server.eventlog import EventLog
from amps.server.replication import frames, hello
from amps.server.replication.completeness import Answers
from amps.server.replication.destinations import Connection, Destination
from amps.server.replication.frames import Algorithm, Buffer, Content, Frame, ProtocolError, number
from amps.server.replication.hello import Flow, Refused
from amps.server.replication.instance_config import InstanceConfig
from amps.server.replication.link import Channel, Link
from amps.server.replication.log_access import LOG_PROBLEMS, LogAccess
from amps.server.replication.logons import Credentials, log_on
from amps.server.replication.validation import Violation, result_frame

SETUP_S = 30.0
VECTOR_S = 120.0
"""The sink's core collects the vector, and syncs its log, before it answers."""
VECTOR_BYTES_MAX = 1 << 30
_CREDIT = struct.Struct("<Q")
_TXID = struct.Struct("<Q")


class Surroundings(Protocol):
    """What a flow needs of this process."""

    log: EventLog
    access: LogAccess

    def durable(self) -> int:
        """Log position below which the journal is durable."""

    def log_end(self) -> int:
        """Log position of the end of the log at this moment, which need not be durable."""

    def logged_on(self, link: Link, label: str) -> None:
        """A flow has logged on. Of several links between two instances one stays. Raises Refused."""

    async def peer_config(self, link: Link, channel: Channel) -> InstanceConfig:
        """Send this instance's CONFIG if it was not sent, and wait for the other's."""

    def violations(self, destination: Destination, peer_config: InstanceConfig) -> list[Violation]:
        """The differences between the configurations that forbid the flow."""

    def schedule(self) -> None:
        """Request a turn."""

    def tail_lost(self) -> None:
        """The log has lost records that were durable, and others have them: begin a new epoch."""

    def raise_event(self, kind: str, connection: Connection) -> None:
        """Run the actions for an event of a destination."""


class Outgoing:
    """One flow to a destination, on a channel for which the sink has sent HELLO_ACK."""

    def __init__(
        self,
        around: Surroundings,
        destination: Destination,
        channel: Channel,
        flow: Flow,
        transport: str,
        credentials: Credentials,
        compression: Algorithm | None,
    ) -> None:
        self._around = around
        self._destination = destination
        self._channel = channel
        self._link = channel.link
        self._flow = flow
        self._transport = transport
        self._credentials = credentials
        self._compression = compression
        self._user = ""
        self._resync_until = 0
        self._resynced = False
        self._durable_there = 0
        """Transaction id up to which the sink has what goes there, durably; it may still wait for others there."""
        self._awaited: int | None = None
        """That up to which it must have it before it counts as up to date; None: not known yet, or told."""
        self._last_sync: bool | None = None
        self._answers = Answers()
        self._moves = False
        """Whether the flow ended because it moves to another link of the two instances."""
        self.began = False
        """Whether records were sent, or could have been."""

    async def run(self) -> Refused:
        """Run the flow until it ends. Return why. Raises Refused if it did not begin, ProtocolError."""
        assert self._link.peer is not None
        try:
            # Even if the flow does not begin: what came from there does not go back, so nobody waits for it.
            self._destination.meet(self._link.peer)
            async with asyncio.timeout(SETUP_S):
                self._user = await log_on(self._channel, self._credentials)
                self._around.logged_on(self._link, self._flow.label)
                peer_config = await self._around.peer_config(self._link, self._channel)
                self._validate(peer_config)
            async with asyncio.timeout(VECTOR_S):
                resume, vector = await self._resume()
            self._start(resume, vector)
        except TimeoutError:
            raise Refused(hello.TIMEOUT, "the other side did not answer in time") from None
        except LOG_PROBLEMS as problem:
            raise Refused(hello.STORAGE, f"the log cannot be read: {problem}") from None
        try:
            end = await self._channel.wait_end()
            self._moves = end.use_link
            return end
        finally:
            self._finish()

    def _validate(self, peer_config: InstanceConfig) -> None:
        violations = self._around.violations(self._destination, peer_config)
        self._channel.send_json(frames.CONFIG_RESULT, result_frame(violations))
        for violation in violations:
            self._around.log.log("1E-0003", client=self._flow.client_name, violation=violation)
        if violations:
            raise Refused(
                hello.VALIDATION,
                f"{len(violations)} checks of the replication configuration failed; the log of the instance that "
                "sends the messages has them",
            )

    async def _resume(self) -> tuple[Content, bytes]:
        resume = Content(await self._channel.expect(frames.RESUME))
        count = resume.number("vector_count", 0)
        if count * 16 > VECTOR_BYTES_MAX:
            raise ProtocolError(f"a vector of {count} publishers")
        vector = bytearray()
        while len(vector) < count * 16:
            part = (await self._channel.expect(frames.RESUME_VECTOR)).payload
            if not part or len(part) % 16 or len(vector) + len(part) > count * 16:
                raise ProtocolError(f"{len(part)} bytes of a vector with {count} publishers")
            vector += part
        return resume, bytes(vector)

    def _start(self, resume: Content, vector: bytes) -> None:
        around, destination, link = self._around, self._destination, self._link
        assert link.peer is not None
        last_txid = resume.number("last_txid", 0)
        end_txid = around.access.last_txid()
        if end_txid is not None and last_txid > end_txid:
            around.log.log("1E-0021", peer=link.peer.name, txid=last_txid)
            around.tail_lost()
            raise Refused(hello.RECONNECT, "a new epoch of the log begins")
        cursor, gap = around.access.find_start(last_txid, destination.source.acked_txid)
        try:
            window = min(resume.number("window", WINDOW_BYTES), WINDOW_BYTES)
            destination.source.begin(cursor, around.durable(), last_txid, vector, window)
        except StreamError as problem:
            raise ProtocolError(str(problem)) from None
        self._resync_until = around.durable()
        self._durable_there = last_txid
        client = self._flow.client_name
        if gap is not None:
            around.log.log("1E-0006", client=client, first=gap[0], last=gap[1])
        self._channel.send_json(
            frames.RESUME_ACK,
            {
                "start_txid": number(last_txid + 1),
                "gap": [number(gap[0]), number(gap[1])] if gap is not None else None,
            },
        )
        self.began = True
        connection = Connection(
            link.peer,
            self._flow,
            link.address,
            self._transport,
            self._user,
            lambda: link.end(_asked_to_reconnect()),
            link.wake,
        )
        destination.connected(connection)
        around.log.log("1E-0001", client=client, peer=link.peer.name, address=link.address)
        around.log.log("1E-0004", client=client, txid=last_txid)
        around.raise_event("connect-replication", connection)
        self._channel.handler = self._take
        self._channel.produce = self._produce
        link.wake()
        around.schedule()

    def _finish(self) -> None:
        destination = self._destination
        connection = destination.connection
        destination.disconnected(self._moves)
        self._around.schedule()
        if connection is not None:
            self._around.raise_event("disconnect-replication", connection)

    # --- while it runs --------------------------------------------------------------------------------------

    def _produce(self) -> Iterable[Buffer]:
        destination, channel = self._destination, self._channel
        source = destination.source
        durable = self._around.durable()
        before = source.sent_position
        try:
            made: list[Buffer] = [
                part
                for kind, payload in source.fill(durable, BATCH_BYTES)
                for part in frames.encode_parts(kind, payload, channel.stream, self._compression)
            ]
            if not made and source.sent_position > before:
                # No acknowledgement will come for what was passed over. At first, that may be what others wait for.
                destination.settle()
                if not self._resynced:
                    self._around.schedule()
        except LOG_PROBLEMS as problem:
            raise Refused(hello.STORAGE, f"the log cannot be read: {problem}") from None
        if source.window > 0 and source.sent_position < durable:
            self._link.wake()  # there is more than one batch
        if destination.is_sync != self._last_sync:
            self._last_sync = destination.is_sync
            mode = "sync" if self._last_sync else "async"
            made.append(frames.encode_json(frames.MODE, {"mode": mode}, channel.stream))
        if self._answers.due(source.sent_position):
            made.append(frames.encode(frames.COMPLETE, b"", channel.stream))
        if not self._resynced and source.sent_position >= self._resync_until:
            self._resynced = True
            made.append(frames.encode(frames.RESYNC_DONE, _TXID.pack(source.sent_txid), channel.stream))
            self._around.log.log("1E-0005", client=self._flow.client_name)
            if destination.connection is not None:
                destination.connection.is_live = True
            self._awaited = source.sent_txid
            self._tell_if_up_to_date()
        return made

    def _tell_if_up_to_date(self) -> None:
        """Raise the event of a complete resynchronization, once: when the sink has it all, not when all was sent."""
        connection = self._destination.connection
        if self._awaited is None or self._durable_there < self._awaited or connection is None:
            return
        self._awaited = None
        self._around.raise_event("replication-resync-complete", connection)

    async def _take(self, frame: Frame) -> None:
        destination = self._destination
        if frame.type == frames.ACK:
            try:
                acknowledged = TxidSet.from_payload(frame.payload)
            except StreamError as problem:
                raise ProtocolError(str(problem)) from None
            if self._around.log.enabled("trace"):
                self._around.log.log("12-1002", client=self._flow.client_name, txid=acknowledged.through)
            destination.acknowledge(acknowledged)
            self._durable_there = max(self._durable_there, acknowledged.through)
            self._tell_if_up_to_date()
            # The turn goes on with the work, and sinks whose records were waiting for this acknowledge them.
            self._around.schedule()
        elif frame.type == frames.CREDIT:
            if len(frame.payload) != _CREDIT.size:
                raise ProtocolError(f"a CREDIT of {len(frame.payload)} bytes")
            try:
                destination.source.credit(_CREDIT.unpack(frame.payload)[0])
            except (StreamError, OverflowError) as problem:
                raise ProtocolError(str(problem)) from None
            self._link.wake()
        elif frame.type == frames.COMPLETE:
            self._answers.asked(self._around.log_end())
            self._link.wake()
        elif frame.type == frames.REJECT:
            if len(frame.payload) < _TXID.size:
                raise ProtocolError(f"a REJECT of {len(frame.payload)} bytes")
            reason = bytes(frame.payload[_TXID.size :][:2000]).decode("utf-8", "replace")
            txid = _TXID.unpack_from(frame.payload)[0]
            self._around.log.log("1E-0007", client=self._flow.client_name, txid=txid, reason=reason)
        else:
            raise ProtocolError(f"{frame.name} to the source of a running flow")


def _asked_to_reconnect() -> Refused:
    return Refused(hello.RECONNECT, "the other instance was asked to reconnect")
