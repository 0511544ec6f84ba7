"""One connection to another instance: reading and writing frames, silence, and its end.

A link has two channels, one for each stream. While a flow is being set up, its coroutine waits for frames with
`Channel.expect`; so a frame that is not legal in that state is a violation. Reading stops until it has taken the frame.
While a flow runs, its `handler` gets the frames. Reading stops while a handler waits: a sink that waits for its core
slows the other side down.

Writing is pulled: the writer asks each channel's `produce` for frames whenever the connection takes more. So a link
buffers no more than one batch, whatever the other side does. Control frames are few, and precede what is produced.

The link ends once, with a `Refused` that says why: by BYE of either side, a violation, a lost connection, or silence
(decision 25.30). BYE with `flow` ends the flow of its stream only.
"""

import asyncio
import contextlib
import json
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from amps.server.replication import frames, hello
from amps.server.replication.frames import Buffer, Content, Frame, ProtocolError
from amps.server.replication.hello import Identity, Refused

PING_AFTER_S = 5.0
DEAD_AFTER_S = 15.0
WATCH_S = 1.0
CLOSE_S = 2.0
WRITE_BUFFER_BYTES = 1 << 20
CONTROL_FRAMES_MAX = 10_000
REASON_CHARS_MAX = 2000

_LINK_FRAMES = frozenset({frames.CONFIG, frames.LINKSTATE, frames.XFER_REQ, frames.OPEN})
"""Frames of the link as a whole, which are legal at any time after the logon."""


class Reader(Protocol):
    """The reading side of a connection."""

    bytes_received: int
    """So far; it rises while `read_into` waits, too."""

    async def read_into(self, room: memoryview, whole: bool) -> int:
        """Wait for bytes, or until the memory is full (`whole`), and store them. Returns how many; 0 at the end."""


class Writer(Protocol):
    """The writing side of a connection, as asyncio.StreamWriter."""

    def writelines(self, parts: Sequence[Buffer]) -> None:
        """Send bytes, or buffer them. The memory of a view stays as it is."""

    async def drain(self) -> None:
        """Wait until little is buffered."""

    def close(self) -> None:
        """Close the connection when all is sent."""


class Channel:
    """One stream of a link."""

    def __init__(self, link: "Link", stream: int) -> None:
        self.link = link
        self.stream = stream
        self.handler: Callable[[Frame], Awaitable[None]] | None = None
        """Gets the frames of a running flow."""
        self.produce: Callable[[], Iterable[Buffer]] | None = None
        """Returns frames to be sent, in parts, about a megabyte at most; none if there is nothing to send now. It wakes
        the link if there is more.
        """
        self._inbox: Frame | None = None
        self._taken: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._end: Refused | None = None
        self._open = False
        self._used = False

    @property
    def open(self) -> bool:
        """Whether a flow uses it."""
        return self._open

    def begin(self) -> None:
        """A flow uses it from now on."""
        self._open = self._used = True
        self._end = None
        self._empty_inbox()

    def finish(self, end: Refused | None) -> None:
        """The flow has ended. With `end` the other side is told, if it did not say so itself and the link lives."""
        if self._open and end is not None and not end.by_peer and self.link.end_reason is None:
            self.send_bye(end)
        self._open = False
        self.handler = self.produce = None
        self._empty_inbox()

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame that is not compressed."""
        self.link.send(frames.encode(kind, payload, self.stream))

    def send_json(self, kind: int, content: dict[str, Any]) -> None:
        """Send a control frame."""
        self.link.send(frames.encode_json(kind, content, self.stream))

    def send_bye(self, end: Refused) -> None:
        """End the flow, and say why."""
        self.send_json(frames.BYE, {"code": end.code, "reason": end.reason[:REASON_CHARS_MAX], "flow": True})

    async def expect(self, *kinds: int, skip_others: bool = False) -> Frame:
        """The next frame, which must be of one of the types. Raises Refused at the end of link or flow, ProtocolError.

        `skip_others`: frames of other types are those of an earlier flow, and ignored.
        """
        while True:
            frame = self._inbox
            if frame is not None:
                self._empty_inbox()
                if frame.type in kinds:
                    return frame
                if not skip_others:
                    wanted = " or ".join(frames.NAMES_OF_TYPES[kind] for kind in kinds)
                    raise ProtocolError(f"{frame.name} where {wanted} is due")
                continue
            self.check()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def check(self) -> None:
        """Raises Refused if link or flow has ended."""
        end = self._end or self.link.end_reason
        if end is not None:
            raise end

    async def wait_end(self) -> Refused:
        """Wait until the link or the flow ends."""
        while True:
            end = self._end or self.link.end_reason
            if end is not None:
                return end
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked after `notify`. Raises Refused at the end of link or flow."""
        while not condition():
            self.check()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def take(self, frame: Frame) -> None:
        """Pass a received frame on."""
        if not self._used:
            raise ProtocolError(f"{frame.name} on stream {self.stream}, which has no flow")
        if not self._open:
            return  # of a flow that this side has ended
        if self.handler is not None:
            await self.handler(frame)
            return
        # Nothing behind it is read before the coroutine has taken it: what is legal then depends on it.
        self._inbox = frame
        self._taken = asyncio.get_running_loop().create_future()
        self.notify()
        await self._taken

    def _empty_inbox(self) -> None:
        self._inbox = None
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    def end_flow(self, end: Refused) -> None:
        """The flow ends, but not the link."""
        self._end = self._end or end
        self.notify()

    def notify(self) -> None:
        """Wake the coroutine that waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Link:
    """One connection. `start` it; `ended` is called once when it has ended."""

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        *,
        dialled: bool,
        has_tls: bool = False,
        address: str,
        received: Callable[["Link", Frame], None],
        ended: Callable[["Link"], None],
        failed: Callable[[str], None],
    ) -> None:
        """`dialled`: this side has made the connection. `has_tls`: it is encrypted. `received` gets CONFIG, LINKSTATE,
        XFER_REQ and OPEN. `failed` receives the traceback of an error in this program.
        """
        self.dialled = dialled
        self.has_tls = has_tls
        self.address = address
        self.peer: Identity | None = None
        """The other instance; None: it has not said who it is."""
        self.trusted = False
        """Whether the logon has succeeded."""
        self.end_reason: Refused | None = None
        self.channels = (Channel(self, 0), Channel(self, 1))
        self._reader = reader
        self._writer = writer
        self._received = received
        self._ended = ended
        self._failed = failed
        self._parser = frames.Parser()
        self._control: deque[bytes] = deque()
        self._writable = asyncio.Event()
        self._heard_s = 0.0
        self._heard_bytes = 0
        self._said_s = 0.0
        self._reading = True
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def source_channel(self) -> Channel:
        """The channel on which this side is the source."""
        return self.channels[0 if self.dialled else 1]

    @property
    def sink_channel(self) -> Channel:
        """The channel on which this side is the sink."""
        return self.channels[1 if self.dialled else 0]

    def start(self) -> None:
        """Read and write from now on."""
        loop = asyncio.get_running_loop()
        self._heard_s = self._said_s = loop.time()
        transport = getattr(self._writer, "transport", None)
        if transport is not None:
            transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        for work in (self._read, self._write, self._watch):
            self._tasks.append(loop.create_task(self._guarded(work)))

    def trust(self) -> None:
        """The logon has succeeded: large frames are allowed from now on."""
        self.trusted = True
        self._parser.bytes_max = frames.FRAME_BYTES_MAX

    # --- writing --------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send an encoded control frame."""
        if self.end_reason is None:
            if len(self._control) >= CONTROL_FRAMES_MAX:
                self.end(
                    Refused(hello.LOST, "the other side asks, and does not read the answers"), tell=False
                )
                return
            self._control.append(frame)
            self._writable.set()

    def wake(self) -> None:
        """A channel may have something to send."""
        self._writable.set()

    async def _write(self) -> None:
        writer = self._writer
        while self.end_reason is None:
            await self._writable.wait()
            self._writable.clear()
            parts: list[Buffer] = []
            for channel in self.channels:
                if channel.produce is not None:
                    parts += channel.produce()
            if self._control:
                parts = [*self._control, *parts]
                self._control.clear()
            if parts:
                self._put(parts)
                await writer.drain()
            if self._writable.is_set():
                await asyncio.sleep(0)  # nothing above need have waited, and others need the loop

    def _put(self, parts: Sequence[Buffer]) -> None:
        self._said_s = asyncio.get_running_loop().time()
        self._writer.writelines(parts)

    # --- reading --------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        parser = self._parser
        while self.end_reason is None:
            self._reading = True
            count = await self._reader.read_into(parser.room(), parser.in_payload)
            self._heard_s = loop.time()
            self._reading = False
            if not count:
                self.end(Refused(hello.LOST, "the other side closed the connection"), tell=False)
                return
            parser.filled(count)
            while self.end_reason is None and (frame := parser.next()) is not None:
                await self._take(frame)

    async def _take(self, frame: Frame) -> None:
        kind = frame.type
        if kind == frames.PING:
            self.send(frames.encode(frames.PONG))
        elif kind == frames.PONG:
            return
        elif kind == frames.BYE:
            self._take_bye(frame)
        elif kind in _LINK_FRAMES:
            if not self.trusted:
                raise ProtocolError(f"{frame.name} before the logon")
            self._received(self, frame)
        elif kind not in frames.NAMES_OF_TYPES:
            raise ProtocolError(f"a frame of the unknown {frame.name}")
        else:
            await self.channels[frame.stream].take(frame)

    def _take_bye(self, frame: Frame) -> None:
        content = Content(frame)
        code = content.text("code", chars_max=64)
        reason = content.text("reason", "", REASON_CHARS_MAX)
        end = Refused(
            code,
            reason,
            by_peer=True,
            use_link=content.flag("use_link"),
            instance_uuid=content.text("instance_uuid", "", 64),
        )
        if content.flag("flow"):
            self.channels[frame.stream].end_flow(end)
        else:
            self.end(end, tell=False)

    # --- the end --------------------------------------------------------------------------------------------

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ProtocolError as problem:
            self.end(Refused(hello.PROTOCOL, str(problem)))
        except Refused as refusal:
            self.end(refusal)
        except (OSError, EOFError) as problem:
            self.end(Refused(hello.LOST, f"the connection is lost: {problem}"), tell=False)
        except asyncio.CancelledError:
            raise
        except Exception:
            self._failed(traceback.format_exc())
            self.end(Refused(hello.LOST, "an unexpected failure here"))

    async def _watch(self) -> None:
        """Send PING after a silence of this side, and end the link after one of the other side."""
        loop = asyncio.get_running_loop()
        looked_s = loop.time()
        while self.end_reason is None:
            await asyncio.sleep(WATCH_S)
            now = loop.time()
            if now - looked_s > 2 * WATCH_S or not self._reading:
                # This process did not run, or it is still at work on the last frame: the silence is its own.
                self._heard_s = max(self._heard_s, now - PING_AFTER_S)
            looked_s = now
            if self._heard_bytes != self._reader.bytes_received:
                # A long payload may take its time.
                self._heard_bytes, self._heard_s = self._reader.bytes_received, now
            if now - self._heard_s >= DEAD_AFTER_S:
                self.end(Refused(hello.LOST, f"the other side was silent for {DEAD_AFTER_S:.0f} s"))
            elif now - self._said_s >= PING_AFTER_S:
                self._said_s = now
                self.send(frames.encode(frames.PING))

    def end(self, end: Refused, tell: bool = True) -> None:
        """End the link, and tell the other side why. No effect if it has ended."""
        if self.end_reason is not None:
            return
        self.end_reason = end
        if tell and not end.by_peer:
            content = {"code": end.code, "reason": end.reason[:REASON_CHARS_MAX], "use_link": end.use_link}
            if end.instance_uuid:
                content["instance_uuid"] = end.instance_uuid
            with contextlib.suppress(OSError, RuntimeError):
                self._put([*self._control, frames.encode(frames.BYE, json.dumps(content).encode())])
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()
        self._writable.set()
        loop = asyncio.get_running_loop()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        transport = getattr(self._writer, "transport", None)
        if transport is not None:
            # A peer that does not read would keep the connection open for ever.
            loop.call_later(CLOSE_S, transport.abort)
        for channel in self.channels:
            channel.notify()
        self._ended(self)

    def abort(self) -> None:
        """End without a word, as if this process had died."""
        transport = getattr(self._writer, "transport", None)
        if self.end_reason is None:
            self.end(Refused(hello.LOST, "aborted"), tell=False)
        if transport is not None:
            transport.abort()
