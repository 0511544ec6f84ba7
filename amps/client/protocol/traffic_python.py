"""The hot path of the client in Python: the same interface and results as `amps._core.client.traffic`.

It serves installations without a compiler. The extension module's texts explain each class. No method here is atomic:
`Outbox.publish` always leaves a publish to the engine, which runs under the client's lock.
"""

import re
import struct
import time
from array import array
from collections.abc import Callable
from typing import Any
from zlib import crc32

from amps.client.protocol.command import numbered_frame
from amps.client.protocol.framing import FrameDecoder, HeaderError, parse_header

# The header of a publish without escapes, blanks and odd values. Groups: topic, sids, bookmark; of a repeated key, the
# last value, as everywhere.
_PLAIN_PUBLISH = re.compile(
    rb'\{"c":"p"(?:,"(?:'
    rb't(?:opic)?":"([^"\\]*+)"|sids":"([^"\\]*+)"|b(?:m|ookmark)":"([^"\\]*+)"|'
    rb'(?!(?:c|cmd|t|topic|sids|bm|bookmark)")[a-z_]++":(?:"[^"\\]*+"|[0-9]++)'
    rb"))*+\}"
).match
_PLAIN_WITHIN = 64 * 1024
_SEPARATE_BYTES = 64 * 1024
_SEND_AT_BYTES = 64 * 1024
_BURST_GAP_S = 0.00005
_NEVER = 2**64 - 1
_PERSISTED, _LAST = 0, 2  # words of `numbers`
_pack_record = struct.Struct("<IIQ").pack_into


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
        "_plain",
        "_route",
        "_store_seq",
        "_sub_id",
    )

    def __init__(self, payload: bytes, route: Any = None, command: str | None = None) -> None:
        self._payload = payload
        self._route = route
        self._command = command
        self._header: dict[str, Any] | None = None
        self._plain: re.Match[bytes] | None = None  # of a header that the reader has matched
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
        if self._plain is not None:
            text = self._plain[1]
            return None if text is None else str(text, "utf-8")
        topic: str | None = self._fields().get("topic")
        return topic

    @property
    def bookmark(self) -> str | None:
        """The bookmark of the message in the log."""
        if self._plain is not None and (text := self._plain[3]) is not None:
            return str(text, "utf-8")
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

        A publish for one known subscription is routed by its `sids`, if its header is plain.
        """
        next_frame, make = self._decoder.next_frame, self._message_type
        last: Any = None
        batch: list[Any] = []
        while (payload := next_frame()) is not None:
            self.frames += 1
            plain = _PLAIN_PUBLISH(payload, 0, _PLAIN_WITHIN)
            route = routes.get(plain[2]) if plain is not None else None
            if plain is None or route is None:
                return payload
            self.content += 1
            if route is not last:
                last = route
                batch = []
                events.append(self._deliver_type(route, batch))
            message = make(payload, route, "publish")
            message._plain = plain
            message._body_at = plain.end()
            batch.append(message)
        self._reading = False
        return None


class NumberedFrames:
    """Numbers frames and keeps them, one after the other."""

    next_number: int

    def add(self, frame: bytes) -> bool:
        """Keep a frame that has the next number already; return whether there was room for it."""
        raise NotImplementedError

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame. `start`: its header up to the number, which is the last field.

        Returns the number; 0 if there is no room.
        """
        number = self.next_number
        return number if self.add(numbered_frame(start, number, body)) else 0


class FrameLog(NumberedFrames):
    """Frames by consecutive numbers, in memory. `max_bytes`: its limit, which one frame may exceed; 0 = none."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.next_number = 1
        self.kept_bytes = 0
        self.max_bytes = max_bytes
        self.stop_at = _NEVER
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
        """Whether `append` refuses."""
        return self.next_number >= self.stop_at or (
            bool(self.max_bytes) and self.kept_bytes >= self.max_bytes
        )

    def restart(self, number: int) -> None:
        """Drop all frames, and continue with this number."""
        self.clear()
        self.next_number = number

    def raise_next(self, number: int) -> None:
        """Continue with at least this number. Only an empty log can skip numbers; otherwise no effect."""
        if not self.count and number > self.next_number:
            self.clear()
            self.next_number = number

    def add(self, frame: bytes) -> bool:
        if self.full:
            return False
        self._frames.append(frame)
        self.kept_bytes += len(frame)
        self.next_number += 1
        return True

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


class SegmentWriter(NumberedFrames):
    """Frames by consecutive numbers, written as records behind each other into a mapped segment.

    An exception that a signal handler raises leaves a record wholly added or not at all. The interpreter runs handlers
    after calls only; in `add`, the last call adds the record, and in `discard` there is none.
    """

    def __init__(self) -> None:
        self.next_number = 1
        self.persisted = 0
        self.max_bytes = 0
        self.end = self.limit = self.total = 0
        self._kept_from = 0
        self._segment: Any = None
        self._numbers: Any = None
        self._add_offset: Callable[[int], None] = array("I").append

    @property
    def kept_bytes(self) -> int:
        """The bytes of the records that are not discarded."""
        return self.total - self._kept_from

    def open(self, numbers: Any, next_number: int, persisted: int, total: int, kept_from: int) -> None:
        """Continue with a recovered state. `numbers`: the three words of the file of this name, mapped."""
        self.close()
        if len(numbers) != 3:
            raise ValueError("numbers must be three words")
        self._numbers = numbers
        self.next_number, self.persisted = next_number, persisted
        self.total, self._kept_from = total, kept_from
        numbers[_LAST] = next_number - 1

    def close(self) -> None:
        """Release the maps; nothing is kept any more."""
        self.detach()
        self._numbers = None
        self.next_number = self.persisted + 1
        self.total = self._kept_from = 0

    def begin(self, segment: Any, offsets: Any, end: int) -> None:
        """Write to this mapped segment from `end` on, and append to `offsets`, an array, where each record starts."""
        if self._numbers is None:
            raise ValueError("the writer is not open")
        self._add_offset = offsets.append
        self.end, self._segment, self.limit = end, segment, len(segment)

    def seal(self) -> None:
        """Refuse all frames, until `begin` or `resume`."""
        self.limit = 0

    def resume(self) -> None:
        """Take frames again, if there still is a segment."""
        if self._segment is not None:
            self.limit = len(self._segment)

    def detach(self) -> None:
        """Seal and release the segment. `end` remains."""
        self.limit = 0
        self._segment = None

    def has_room(self, length: int) -> bool:
        """Whether the segment has room for a frame of this length."""
        return self.end + 16 + length <= self.limit

    def add(self, frame: bytes) -> bool:
        """Keep a frame that has the next number already; return whether it was taken."""
        at, number = self.end, self.next_number
        length = len(frame)
        end = at + 16 + length
        if end > self.limit or (self.max_bytes and self.kept_bytes >= self.max_bytes):
            return False
        segment = self._segment
        segment[at + 16 : end] = frame
        _pack_record(segment, at, length, crc32(frame, number & 0xFFFFFFFF), number)
        self._numbers[_LAST] = number
        self.end = end
        self.total += 16 + length
        self.next_number = number + 1
        self._add_offset(at)
        return True

    def discard(self, number: int, kept_from: int) -> None:
        """Discard the records up to a number. `kept_from`: what `total` was before the next one.

        If the number is above all known ones, numbering continues above it; the segment is sealed.
        """
        if number <= self.persisted or self._numbers is None:
            return
        self._numbers[_PERSISTED] = self.persisted = number
        self._kept_from = kept_from
        if number >= self.next_number:
            self.limit = 0
            self.next_number = number + 1
            self._kept_from = self.total


class Outbox:
    """The frames of one client that wait to be written to its connection, in order."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.ready = self.blocked = self.signalled = self.numbered = False
        self.burst = False
        self.log: NumberedFrames | None = None
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
        """Number a frame, keep it in `log` and add it; return the number, 0 if the log has no room."""
        assert self.log is not None
        number = self.log.next_number
        frame = numbered_frame(start, number, body)
        if not self.log.add(frame):
            return 0
        self.add(frame)
        return number

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


__all__ = [
    "AckBatch",
    "FrameLog",
    "FrameReader",
    "HeaderError",
    "NumberedFrames",
    "Outbox",
    "ReceivedMessage",
    "SegmentWriter",
]
