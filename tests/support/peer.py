"""A raw protocol peer: sockets, frames and headers without any part of the code under test.

`RawClient` implements the wire format of protocol.md §2 and §3 by itself. Its reader is stricter than the protocol
requires of a client: each header from the server must have `c` first, use the abbreviations, carry integers bare and
everything else quoted, and hold no key twice. So every test checks the server's writer.

Waiting is always bounded (`DEFAULT_TIMEOUT_S`); the limits are generous and mean "never", not "slow". Messages that
arrive while a helper waits for an acknowledgement are kept, in order, for `receive`.
"""

import json
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_TIMEOUT_S = 20.0
LENGTH_BYTES = 4
MAXIMUM_MESSAGE_BYTES = 200 * 2**20
"""The largest payload of a frame (header and body) that the server accepts."""

RECEIVE_CHUNK_BYTES = 1 << 20

Value = str | int | bool

ABBREVIATIONS = {
    "cmd": "c", "cmd_id": "cid", "ack_type": "a", "topic": "t", "filter": "f", "opts": "o", "bookmark": "bm",
    "batch_size": "bs", "sow_key": "k", "expiration": "e", "seq": "s", "correlation_id": "x",
    "password": "pw", "message_type": "mt", "timestamp": "ts", "leaseperiod": "lp", "msg_len": "l",
}  # fmt: skip
"""Full name to abbreviation, protocol.md §3.1; `version` is written in full."""

SERVER_KEYS = frozenset(ABBREVIATIONS.values()) | {
    "sub_id", "sids", "query_id", "client_name", "user_id", "version", "status", "reason", "gseq", "matches",
    "topic_matches", "records_returned", "records_inserted", "records_updated", "records_deleted",
    "detail", "position",  # this server's own field, of failures only (docs/messages.md)
    "not_before",  # of delayed messages
}  # fmt: skip
INTEGER_KEYS = frozenset(
    ["s", "bs", "l", "gseq", "matches", "topic_matches", "records_returned", "records_inserted",
     "records_updated", "records_deleted", "position", "not_before"]
)  # fmt: skip

_HEADER = re.compile(rb'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}', re.DOTALL)


class PeerError(AssertionError):
    """An expected event did not happen, or the server violated the protocol."""


class ConnectionClosed(PeerError):
    """The server closed the connection while the peer waited for a frame."""


class Silence(PeerError):
    """Nothing arrived within the time limit."""


@dataclass(frozen=True)
class Message:
    """One frame from the server."""

    header: dict[str, Value]
    body: bytes = b""
    raw_header: bytes = field(default=b"", compare=False, repr=False)

    def __getitem__(self, key: str) -> Value:
        return self.header[key]

    def __contains__(self, key: str) -> bool:
        return key in self.header

    def get(self, key: str) -> Value | None:
        return self.header.get(key)

    @property
    def command(self) -> str:
        """The command word; a delivery is `p`, however it is spelled."""
        word = str(self.header["c"])
        return "p" if word == "publish" else word

    @property
    def subscriptions(self) -> set[str]:
        """The subscription ids a delivery is for."""
        return set(str(self.header.get("sids", self.header.get("sub_id", ""))).split(",")) - {""}

    def is_ack(self, ack_type: str | None = None, cid: str | None = None) -> bool:
        return (
            self.command == "ack"
            and (ack_type is None or self.header.get("a") == ack_type)
            and (cid is None or self.header.get("cid") == cid)
        )

    @property
    def succeeded(self) -> bool:
        return self.header.get("status") == "success"

    @property
    def failed(self) -> bool:
        return self.header.get("status") == "failure"

    @property
    def reason(self) -> str:
        return str(self.header.get("reason", ""))


def encode_header(fields: Mapping[str, Value]) -> bytes:
    """The header text of a command, keys as given (so a test can use full names or abbreviations)."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def frame(header: Mapping[str, Value] | str | bytes, body: bytes = b"") -> bytes:
    """One whole frame; a textual header is sent unchanged, well-formed or not."""
    if isinstance(header, str):
        header = header.encode()
    elif not isinstance(header, bytes):
        header = encode_header(header)
    return (len(header) + len(body)).to_bytes(LENGTH_BYTES, "big") + header + body


def decode_payload(payload: bytes) -> Message:
    """Header and body of a frame from the server. Raise for anything that the server's writer may not produce."""
    match = _HEADER.match(payload)
    if match is None:
        raise PeerError(f"frame does not begin with a header: {payload[:200]!r}")
    text = match.group()
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except ValueError as error:
        raise PeerError(f"header is no flat JSON: {text[:400]!r}: {error}") from None
    header: dict[str, Value] = {}
    for key, value in pairs:
        if key not in SERVER_KEYS:
            raise PeerError(f"the server wrote the unknown or unabbreviated key {key!r}: {text[:400]!r}")
        if key in header:
            raise PeerError(f"the server wrote the key {key!r} twice: {text[:400]!r}")
        if (type(value) is int) != (key in INTEGER_KEYS):
            raise PeerError(f"integers must be bare, other values quoted, {key!r} is not: {text[:400]!r}")
        header[key] = value
    if not pairs or pairs[0][0] != "c":
        raise PeerError(f"the server's header does not begin with `c`: {text[:400]!r}")
    if header.get("status") != "failure" and not header.keys().isdisjoint(("detail", "position")):
        raise PeerError(f"only failures have a detail: {text[:400]!r}")
    return Message(header, payload[match.end() :], text)


class RawClient:
    """One connection to the server. Use as a context manager or close it."""

    def __init__(self, connected: socket.socket, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.socket = connected
        self.timeout_s = timeout_s
        self.client_name = ""
        self._received = bytearray()
        self._kept: deque[Message] = deque()
        self._next_id = 1

    # Connecting

    @classmethod
    def tcp(
        cls, port: int, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None,
        server_name: str = "localhost", receive_buffer_bytes: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> "RawClient":  # fmt: skip
        """Connect over TCP, with TLS when a context is given."""
        raw = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            raw.settimeout(timeout_s)
            if receive_buffer_bytes is not None:  # must be set before the connection to bound its window
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            raw.connect((host, port))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected = raw if tls is None else tls.wrap_socket(raw, server_hostname=server_name)
        except BaseException:
            raw.close()
            raise
        return cls(connected, timeout_s=timeout_s)

    @classmethod
    def unix(cls, path: Path, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> "RawClient":
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            raw.settimeout(timeout_s)
            raw.connect(str(path))
        except BaseException:
            raw.close()
            raise
        return cls(raw, timeout_s=timeout_s)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sending

    def new_id(self) -> str:
        """A command id not used on this connection before."""
        identifier = f"id-{self._next_id}"
        self._next_id += 1
        return identifier

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        self.socket.settimeout(self.timeout_s)
        self.socket.sendall(data)

    def send(self, header: Mapping[str, Value] | str | bytes, body: bytes = b"") -> None:
        self.send_bytes(frame(header, body))

    # Receiving

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message, one kept by an earlier helper first."""
        if self._kept:
            return self._kept.popleft()
        return self._receive_new(self._deadline(timeout_s))

    def receive_many(self, count: int, timeout_s: float | None = None) -> list[Message]:
        """The next `count` messages of any kind, within one time limit."""
        deadline = self._deadline(timeout_s)
        received: list[Message] = []
        while len(received) < count:
            try:
                received.append(self._kept.popleft() if self._kept else self._receive_new(deadline))
            except PeerError as error:
                tail = [message.header for message in received[-5:]]
                raise type(error)(
                    f"after {len(received)} of {count} messages: {error}; last: {tail}"
                ) from None
        return received

    def receive_published(self, count: int, timeout_s: float | None = None) -> list[Message]:
        """The next `count` messages; each must be a delivery."""
        messages = self.receive_many(count, timeout_s)
        for message in messages:
            if message.command != "p":
                raise PeerError(f"expected a delivery, got {message.header}")
        return messages

    def receive_until(self, body: bytes, timeout_s: float | None = None) -> list[Message]:
        """The deliveries before the one with this body, which is consumed. Acks between are kept."""
        deadline = self._deadline(timeout_s)
        received: list[Message] = []
        acks: list[Message] = []
        pending, self._kept = self._kept, deque()
        while True:
            message = pending.popleft() if pending else self._receive_new(deadline)
            if message.command == "ack":
                acks.append(message)
            elif message.body == body:
                break
            else:
                received.append(message)
        self._kept.extend([*acks, *pending])
        return received

    def wait_for_ack(self, ack_type: str, cid: str | None = None, timeout_s: float | None = None) -> Message:
        """The next ack of that type (and command id); messages that arrive before it are kept for `receive`."""
        for index, message in enumerate(self._kept):
            if message.is_ack(ack_type, cid):
                del self._kept[index]
                return message
        deadline = self._deadline(timeout_s)
        while True:
            try:
                message = self._receive_new(deadline)
            except PeerError as error:
                kept = [kept.header for kept in self._kept][-5:]
                raise type(error)(f"waiting for the {ack_type} ack of {cid}: {error}; kept: {kept}") from None
            if message.is_ack(ack_type, cid):
                return message
            self._kept.append(message)

    def wait_for_persisted(self, sequence: int, timeout_s: float | None = None) -> list[Message]:
        """All persisted acks up to the first success that covers `sequence`."""
        deadline = self._deadline(timeout_s)
        acks: list[Message] = []
        while True:
            ack = self.wait_for_ack("persisted", timeout_s=max(0.0, deadline - time.monotonic()))
            acks.append(ack)
            covered = ack.get("s")
            if ack.succeeded and isinstance(covered, int) and covered >= sequence:
                return acks

    def wait_for_close(self, timeout_s: float | None = None) -> list[Message]:
        """All messages that still arrive before the server closes the connection."""
        deadline = self._deadline(timeout_s)
        received = list(self._kept)
        self._kept.clear()
        while True:
            try:
                received.append(self._receive_new(deadline))
            except ConnectionClosed:
                return received

    # Commands

    def logon(self, client_name: str, **fields: Value) -> Message:
        """Log on with a request for `processed`; the ack is returned and must be a success."""
        ack = self.try_logon(client_name, **fields)
        if not ack.succeeded:
            raise PeerError(f"logon of {client_name!r} failed: {ack.header}")
        return ack

    def try_logon(self, client_name: str, **fields: Value) -> Message:
        """Log on and return the `processed` ack, success or failure."""
        self.client_name = client_name
        return self.request({"c": "logon", "client_name": client_name, "version": "0.1:raw", **fields})

    def request(
        self, header: Mapping[str, Value], body: bytes = b"", *, ack: str = "processed",
        timeout_s: float | None = None,
    ) -> Message:  # fmt: skip
        """Send a command and return its first ack of type `ack`; `a` and `cid` are added unless given."""
        cid = str(header.get("cid", "")) or self.new_id()
        self.send({"a": ack, **header, "cid": cid}, body)
        return self.wait_for_ack(ack, cid, timeout_s)

    def subscribe(self, topic: str, sub_id: str | None = None, **fields: Value) -> Message:
        """Subscribe; the `processed` ack is returned and must be a success."""
        ack = self.try_subscribe(topic, sub_id, **fields)
        if not ack.succeeded:
            raise PeerError(f"subscribe to {topic!r} failed: {ack.header}")
        return ack

    def try_subscribe(self, topic: str, sub_id: str | None = None, **fields: Value) -> Message:
        if sub_id is not None:
            fields["sub_id"] = sub_id
        return self.request({"c": "subscribe", "t": topic, **fields})

    def unsubscribe(self, sub_id: str) -> Message:
        return self.request({"c": "unsubscribe", "sub_id": sub_id})

    def publish(self, topic: str, body: bytes, **fields: Value) -> None:
        """Publish without an ack request unless `a` is given."""
        self.send({"c": "p", "t": topic, **fields}, body)

    def publish_all(
        self, topic: str, bodies: Sequence[bytes], *, first_sequence: int | None = None, **fields: Value
    ) -> None:
        """Publish many messages in one write, numbered from `first_sequence` if that is given."""
        burst = bytearray()
        for number, body in enumerate(bodies):
            numbered = {} if first_sequence is None else {"s": first_sequence + number}
            burst += frame({"c": "p", "t": topic, **numbered, **fields}, body)
        self.send_bytes(burst)

    def publish_persisted(self, topic: str, bodies: Sequence[bytes], first_sequence: int) -> None:
        """Publish numbered messages to a logged topic and wait until all are acknowledged as persisted."""
        self.publish_all(topic, bodies, first_sequence=first_sequence, a="persisted")
        self.wait_for_persisted(first_sequence + len(bodies) - 1)

    def flush(self, ack: str = "completed", timeout_s: float | None = None) -> Message:
        """Wait until the server has processed (or persisted) everything sent so far on this connection."""
        answer = self.request({"c": "flush"}, ack=ack, timeout_s=timeout_s)
        if not answer.succeeded:
            raise PeerError(f"flush failed: {answer.header}")
        return answer

    def expect_silence(self) -> None:
        """Check that only the acks of two flushes arrive: no delivery was on its way, nor caused by the commands
        sent.

        The first flush is answered when everything sent so far has its place in the order. Deliveries of these
        messages go out in the same turn of the server, but after the ack. The second flush is answered after them.
        """
        for ack in ("completed", "processed"):
            cid = self.new_id()
            self.send({"c": "flush", "cid": cid, "a": ack})
            message = self.receive()
            if not message.is_ack(ack, cid):
                raise PeerError(f"expected silence, got {message.header} {message.body[:200]!r}")

    def expect_nothing_for(self, seconds: float) -> None:
        """Check that nothing arrives for some time. Only for cases in which no flush can prove it (a paused clock, a
        timer).
        """
        try:
            message = self.receive(seconds)
        except Silence:
            return
        raise PeerError(f"expected silence, got {message.header} {message.body[:200]!r}")

    # Frames

    def _deadline(self, timeout_s: float | None) -> float:
        return time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)

    def _receive_new(self, deadline: float) -> Message:
        self._fill(LENGTH_BYTES, deadline)
        length = int.from_bytes(self._received[:LENGTH_BYTES], "big")
        if length > 2 * MAXIMUM_MESSAGE_BYTES:
            raise PeerError(f"the server announces a frame of {length} bytes; framing is lost")
        self._fill(LENGTH_BYTES + length, deadline)
        payload = bytes(memoryview(self._received)[LENGTH_BYTES : LENGTH_BYTES + length])
        del self._received[: LENGTH_BYTES + length]
        return decode_payload(payload)

    def _fill(self, wanted_bytes: int, deadline: float) -> None:
        """Read from the socket until that many bytes are buffered."""
        while len(self._received) < wanted_bytes:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                chunk = self.socket.recv(RECEIVE_CHUNK_BYTES)
            except TimeoutError:
                raise Silence(f"nothing arrived in time ({len(self._received)} bytes buffered)") from None
            except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
                chunk = b""
            if not chunk:
                raise ConnectionClosed(f"closed by the server ({len(self._received)} bytes buffered)")
            self._received += chunk


def bodies_of(messages: Iterable[Message]) -> list[bytes]:
    return [message.body for message in messages]


def bookmarks_of(messages: Iterable[Message]) -> list[str]:
    return [str(message["bm"]) for message in messages]
