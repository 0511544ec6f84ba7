"""The hot path of the client in Python: the same interface and results as `amps._core.client.traffic`.

It serves installations without a compiler. The extension module's texts explain each class. No method here is atomic:
`Outbox.publish` always leaves a publish to the engine, which runs under the client's lock.
"""

import time
from collections.abc import Callable
from typing import Any

from amps.client.protocol.framing import FrameDecoder, HeaderError, parse_header

_PUBLISH_START = b'{"c":"p",'
_SIDS = b'"sids":"'
_SIDS_WITHIN = 1024
_SEPARATE_BYTES = 64 * 1024
_SEND_AT_BYTES = 64 * 1024
_BURST_GAP_S = 0.00005


def body_offset(payload: bytes) -> int:
    """Return the offset of the end of the header if it can be found without parsing, else -1.

    The first closing brace ends the header unless it stands inside a string: with an even number of quotes
    and no escapes before it, it does not.
    """
    brace = payload.find(b"}")
    if brace < 0 or payload.count(b'"', 0, brace) & 1 or payload.find(b"\\", 0, brace) >= 0:
        return -1
    return brace + 1


class ReceivedMessage:
    """The payload of a message: header and body. A field is decoded when it is read."""

    __slots__ = (
        "_body_at",
        "_body_end",
        "_command",
        "_header",
        "_payload",
        "_route",
        "_store_seq",
        "_sub_id",
    )

    def __init__(self, payload: bytes, route: Any = None, command: str | None = None) -> None:
        self._payload = payload
        self._route = route
        self._command = command
        self._header: dict[str, Any] | None = None
        self._body_at = -1
        self._body_end = len(payload)
        self._sub_id: str | None = None
        self._store_seq = 0

    def _fields(self) -> dict[str, Any]:
        header = self._header
        if header is None:
            header, self._body_at = parse_header(self._payload)
            self._header = header
        return header

    def _start(self) -> int:
        at = self._body_at
        if at < 0:
            at = body_offset(self._payload)
            if at < 0:
                self._fields()
                at = self._body_at
            self._body_at = at
        return at

    @property
    def data(self) -> bytes:
        """The body."""
        return self._payload[self._start() : self._body_end]

    @property
    def view(self) -> memoryview:
        """The body without a copy."""
        return memoryview(self._payload)[self._start() : self._body_end]

    @property
    def topic(self) -> str | None:
        """The topic to which it was published."""
        topic: str | None = self._fields().get("topic")
        return topic

    @property
    def bookmark(self) -> str | None:
        """The bookmark of the message in the log."""
        bookmark: str | None = self._fields().get("bookmark")
        return bookmark

    def ack(self, options: str = "") -> None:
        """Acknowledge a queue message; no effect on other messages. Never waits."""
        route = self._route
        if route is not None and route.owner is not None:
            route.owner.ack(self, options=options)


class FrameReader:
    """Cuts received bytes into payloads, and makes the messages of known subscriptions."""

    def __init__(
        self,
        max_frame_bytes: int,
        message_type: type[ReceivedMessage],
        deliver_type: Callable[[Any, list[Any]], Any],
    ) -> None:
        if not issubclass(message_type, ReceivedMessage):
            raise TypeError("message_type must derive from ReceivedMessage")
        self.max_frame_bytes = max_frame_bytes
        self.frames = 0
        self.content = 0
        self._message_type = message_type
        self._deliver_type = deliver_type
        self._decoder = FrameDecoder(max_frame_bytes)
        self._reading = False

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes taken and not yet returned in a frame."""
        return self._decoder.buffered_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take received bytes. They must not change until `next` has returned None."""
        if self._reading:
            raise ValueError("feed: the bytes of the last call have not been read to their end")
        self._decoder.feed(data)
        self._reading = True

    def clear(self) -> None:
        """Drop all bytes that were taken: the connection is lost."""
        self._decoder = FrameDecoder(self.max_frame_bytes)
        self._reading = False

    def next(self, routes: dict[bytes, Any], events: list[Any]) -> bytes | None:
        """Return the payload of the next frame that needs the engine; None when the bytes taken are used up.

        A publish for one known subscription is routed by its `sids` alone, without parsing the header. After a brace,
        `sids` might be part of the body.
        """
        next_frame = self._decoder.next_frame
        last: Any = None
        batch: list[Any] = []
        while (payload := next_frame()) is not None:
            self.frames += 1
            if payload.startswith(_PUBLISH_START):
                at = payload.find(_SIDS, 0, _SIDS_WITHIN)
                if at > 0 and payload.find(b"}", 0, at) < 0 and payload.find(b"\\", 0, at) < 0:
                    start = at + 8
                    route = routes.get(payload[start : payload.find(b'"', start)])
                    if route is not None and body_offset(payload) >= 0:
                        self.content += 1
                        if route is not last:
                            last = route
                            batch = []
                            events.append(self._deliver_type(route, batch))
                        batch.append(self._message_type(payload, route, "publish"))
                        continue
            return payload
        self._reading = False
        return None


class FrameLog:
    """Frames by consecutive numbers, in memory. `max_bytes`: its limit, which one frame may exceed; 0 = none."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.next_number = 1
        self.kept_bytes = 0
        self.max_bytes = max_bytes
        self._frames: list[bytes | None] = []  # the first `_dropped` are None
        self._dropped = 0

    @property
    def count(self) -> int:
        """The number of frames kept."""
        return len(self._frames) - self._dropped

    @property
    def lowest(self) -> int:
        """The lowest number kept; 0 = none."""
        return self.next_number - self.count if self.count else 0

    @property
    def full(self) -> bool:
        """Whether `append` must not be called."""
        return bool(self.max_bytes) and self.kept_bytes >= self.max_bytes

    def raise_next(self, number: int) -> None:
        """Continue with at least this number. Only an empty log can skip numbers; otherwise no effect."""
        if not self.count and number > self.next_number:
            self.clear()
            self.next_number = number

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame. `start`: its header up to the number, which is the last field.

        Returns the number; 0 if the log is full.
        """
        if self.full:
            return 0
        header = b"%b%d}" % (start, self.next_number)
        frame = b"%b%b%b" % ((len(header) + len(body)).to_bytes(4, "big"), header, body)
        self._frames.append(frame)
        self.kept_bytes += len(frame)
        self.next_number += 1
        return self.next_number - 1

    def drop_up_to(self, number: int) -> None:
        """Drop all frames up to this number."""
        first = self.next_number - len(self._frames)
        for at in range(self._dropped, min(len(self._frames), number - first + 1)):
            self.kept_bytes -= len(self._frames[at] or b"")
            self._frames[at] = None
            self._dropped = at + 1
        if self._dropped > len(self._frames) // 2:
            del self._frames[: self._dropped]
            self._dropped = 0

    def frame(self, number: int) -> bytes | None:
        """Return the frame with this number; None if it is not kept."""
        at = number - (self.next_number - len(self._frames))
        return self._frames[at] if 0 <= at < len(self._frames) else None

    def clear(self) -> None:
        """Drop all frames; the numbers continue."""
        self._frames = []
        self._dropped = 0
        self.kept_bytes = 0


class Outbox:
    """The frames of one client that wait to be written to its connection, in order."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.ready = self.blocked = self.signalled = self.numbered = False
        self.burst = False
        self.log: FrameLog | None = None
        self.pending_bytes = 0
        self.frames = 0
        self._chunks: list[bytes] = []
        self._last = 0.0

    def add(self, frame: bytes) -> None:
        """Add a frame."""
        self._chunks.append(frame)
        self.pending_bytes += len(frame)
        self.frames += 1

    def add_parts(self, start: bytes, body: bytes) -> None:
        """Add a frame of which `body`, which may be large, is the end."""
        if len(body) > _SEPARATE_BYTES:
            self.add(start)
            self._chunks.append(body)
            self.pending_bytes += len(body)
        else:
            self.add(start + body)

    def add_numbered(self, start: bytes, body: bytes) -> int:
        """Number a frame, keep it in `log` and add it; return the number, 0 if the log is full."""
        assert self.log is not None
        sequence = self.log.append(start, body)
        if sequence:
            self.add(self.log.frame(sequence) or b"")
        return sequence

    def take(self) -> list[bytes]:
        """Remove and return the bytes, as chunks in order."""
        chunks, self._chunks = self._chunks, []
        self.pending_bytes = 0
        return chunks

    def clear(self) -> None:
        """Drop everything: the connection is lost."""
        self._chunks = []
        self.pending_bytes = 0

    def learn(self, topic: str, header: bytes) -> None:
        """No effect: all publishes are left to the engine."""

    def publish(self, topic: object, data: object) -> int:
        """Return -1: the engine publishes."""
        return -1

    def note_publish(self) -> None:
        """Note a publish that the engine has added."""
        now = time.monotonic()
        self.burst = now - self._last <= _BURST_GAP_S and self.pending_bytes <= _SEND_AT_BYTES
        self._last = now

    def note_sent(self) -> None:
        """Note that the bytes of the last publish have been sent: the time that took does not end the burst."""
        self._last = time.monotonic()


class AckBatch:
    """The unsent acknowledgements of one subscription for one topic, while a batch of them is under way."""

    def __init__(self, topic: str, limit: int = 0) -> None:
        self.topic = topic
        self.limit = limit
        self.count = 0
        self._bookmarks: list[bytes] = []

    def add(self, bookmarks: bytes, count: int) -> None:
        """Add `count` bookmarks, joined by commas."""
        self._bookmarks.append(bookmarks)
        self.count += count

    def take(self) -> str:
        """Remove and return the bookmarks, joined by commas."""
        text = b",".join(self._bookmarks).decode()
        self._bookmarks = []
        self.count = self.limit = 0
        return text


__all__ = ["AckBatch", "FrameLog", "FrameReader", "HeaderError", "Outbox", "ReceivedMessage"]
