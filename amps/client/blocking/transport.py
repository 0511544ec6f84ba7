"""Blocking byte transports: tcp, tls and unix sockets, and the HTTP exchange that opens a connection through
proxies.

A transport moves bytes and does not interpret messages. One thread receives while others send (one at a
time: the caller holds a send lock). So a TLS connection works on memory buffers under its own
short lock: a blocked send never stops receiving. A send ends at its deadline: the transport keeps the bytes that the
peer has not accepted and sends them first with the next send.
"""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from amps.client.errors import (
    AMPSException,
    ConnectionRefusedException,
    TimedOutException,
)
from amps.client.frontend.dialling import (
    NO_TLS_HERE,
    NOT_LET_IN,
    SAID_NOTHING,
    check_length,
    early_bytes,
    preflight_request,
    set_options,
)
from amps.client.protocol.traffic import Outbox
from amps.client.uri import ConnectionUri
from amps.same_host import send_unpaced

RECEIVE_BYTES = 64 * 1024
LONGEST_POLL_S = 1_000_000.0
SEND_TOGETHER_BYTES = 256 * 1024


class SocketTransport:
    """A connected stream socket."""

    def __init__(self, sock: socket.socket, early: bytes = b"") -> None:
        self._socket = sock
        self._early = early  # bytes received together with the preflight answer
        self._unheard = sock.family != socket.AF_UNIX  # no bytes received yet; the server may expect TLS
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll_out = select.poll()
        self._poll_out.register(sock, select.POLLOUT)
        self._begun = memoryview(b"")  # the rest of a chunk that the socket accepted in part
        self._waiting: deque[bytes] = deque()
        self.outbox: Outbox | None = None
        """The client's outbox, which is blocked while the transport is behind."""
        self._behind = False
        self.broken = False
        """Whether no more bytes can be sent."""

    @property
    def behind(self) -> bool:
        """Whether bytes not sent by the deadline are kept, or no more bytes can be sent."""
        return self._behind

    @behind.setter
    def behind(self, behind: bool) -> None:
        self._behind = behind
        if self.outbox is not None:
            self.outbox.blocked = behind

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes kept."""
        return len(self._begun) + sum(map(len, list(self._waiting))) if self.behind else 0

    def receive(self, timeout_s: float | None = None) -> bytes | memoryview | None:
        """Return received bytes, valid until the next call; empty at the end, None if none arrive in time."""
        if self._early:
            early, self._early = self._early, b""
            return early
        if timeout_s is not None and not self._poll.poll(max(0.0, timeout_s) * 1000):
            return None
        try:
            data = self._buffer[: self._socket.recv_into(self._buffer)]
        except ConnectionResetError:
            if self._unheard:
                raise ConnectionResetError(SAID_NOTHING) from None
            raise
        if self._unheard:
            if not len(data):
                raise ConnectionResetError(SAID_NOTHING)
            self._unheard = False
        return data

    def send(self, chunks: Sequence[bytes], deadline: float | None = None) -> bool:
        """Send the kept bytes, then the chunks in order. False: the deadline (None: none) passed, the rest is kept.

        Raises OSError if the connection is `broken`; the kept bytes are dropped.
        """
        waiting = self._waiting
        waiting.extend(together(chunks))
        send, begun = self._socket.send, self._begun
        try:
            while begun or waiting:
                if not begun:
                    begun = self._begun = memoryview(self._wire_bytes(waiting.popleft()))
                try:
                    begun = self._begun = begun[send(begun, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self.behind = True
                    if not self._wait_writable(deadline):
                        return False
        except OSError:
            waiting.clear()
            self._begun = memoryview(b"")
            self.behind = self.broken = True
            raise
        self.behind = False
        return True

    def _wire_bytes(self, data: bytes) -> bytes:
        """Return the bytes to write to the socket for these bytes."""
        return data

    def _wait_writable(self, deadline: float | None) -> bool:
        if deadline is None:
            return bool(self._poll_out.poll())
        left_s = deadline - time.monotonic()
        return left_s > 0 and bool(self._poll_out.poll(min(left_s, LONGEST_POLL_S) * 1000))

    def shutdown(self) -> None:
        """End both directions: a blocked receive or send returns. Any thread may call this."""
        with contextlib.suppress(OSError):  # the peer may have closed first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket. Called when no thread uses it any more."""
        self._socket.close()


class TlsTransport(SocketTransport):
    """TLS over a connected socket."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, host: str, deadline: float | None
    ) -> None:
        super().__init__(sock)
        self._lock = threading.Lock()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unheard = False  # the handshake has received bytes
        self._silent = True  # no decrypted bytes received yet
        self._handshake(deadline)

    def _handshake(self, deadline: float | None) -> None:
        while True:
            try:
                self._tls.do_handshake()
                self._flush()
                return
            except ssl.SSLWantReadError:
                self._flush()
                self._socket.settimeout(remaining(deadline))
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError(NO_TLS_HERE) from None
                self._incoming.write(data)

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._socket.sendall(data)

    def _decrypted(self) -> bytes:
        parts = []
        while True:
            try:
                part = self._tls.read(RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._incoming.write_eof()
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def receive(self, timeout_s: float | None = None) -> bytes | memoryview | None:
        if self._early:
            return super().receive()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                data = self._decrypted()
                if data:
                    self._silent = False
                    return data
                if self._incoming.eof:
                    if self._silent:
                        raise ConnectionResetError(NOT_LET_IN)
                    return data
            try:
                raw = super().receive(None if deadline is None else deadline - time.monotonic())
            except ConnectionResetError:
                if self._silent:
                    raise ConnectionResetError(NOT_LET_IN) from None
                raise
            if raw is None:
                return None
            with self._lock:
                if len(raw):
                    self._incoming.write(raw)
                else:
                    self._incoming.write_eof()

    def _wire_bytes(self, data: bytes) -> bytes:
        with self._lock:
            self._tls.write(data)
            return self._outgoing.read()

    def shutdown(self) -> None:
        with self._lock:
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()  # sends the closing alert; its answer is not awaited
            alert = self._outgoing.read()
        if not self.behind:  # the alert must not follow a part of a record
            with contextlib.suppress(OSError):  # not sent if the connection is full or dead
                self._socket.send(alert, socket.MSG_DONTWAIT)
        super().shutdown()


def together(chunks: Sequence[bytes]) -> Iterable[bytes]:
    """Join small chunks, so that a burst costs few system calls; large ones are not copied."""
    if len(chunks) == 1:
        yield chunks[0]
        return
    group: list[bytes] = []
    size = 0
    for chunk in chunks:
        if size and size + len(chunk) > SEND_TOGETHER_BYTES:
            yield group[0] if len(group) == 1 else b"".join(group)
            group, size = [], 0
        group.append(chunk)
        size += len(chunk)
    if group:
        yield group[0] if len(group) == 1 else b"".join(group)


def remaining(deadline: float | None) -> float | None:
    """Return the seconds left, None for no deadline. Raises TimedOutException if none are left."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOutException("the connection was not made in time")
    return left


Opened = Callable[[socket.socket], object]

_Address = tuple[Any, ...]
"""One entry of the result of getaddrinfo."""


def dial(
    uri: ConnectionUri,
    *,
    timeout_s: float | None,
    tls: ssl.SSLContext | None = None,
    http_headers: Iterable[str] | Mapping[str, str] = (),
    opened: Opened = lambda sock: None,
) -> SocketTransport:
    """Connect to the address of the connection string, within the time limit.

    `opened` is called with each socket before it is connected; it may raise to end the attempt. Shutting the socket
    down in another thread ends the attempt, too.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    request = preflight_request(uri, http_headers) if uri.http_preflight else b""
    sock: socket.socket | None = None
    try:
        sock = (
            _connect_unix(uri, deadline, opened)
            if uri.scheme == "unix"
            else _connect_tcp(uri, deadline, opened)
        )
        transport: SocketTransport
        if uri.scheme == "tcps":
            transport = TlsTransport(sock, tls or ssl.create_default_context(), uri.host, deadline)
        else:
            transport = SocketTransport(sock)
        sock.settimeout(None)
        if request:
            _preflight(transport, uri, request, deadline)
        return transport
    except AMPSException:
        if sock is not None:
            sock.close()
        raise
    except (OSError, ValueError) as error:
        if sock is not None:
            sock.close()
        if isinstance(error, TimeoutError):
            raise TimedOutException(f"{uri.safe_text}: the connection was not made in time") from error
        raise ConnectionRefusedException(f"cannot connect to {uri.safe_text}: {error}") from error


def _connect_unix(uri: ConnectionUri, deadline: float | None, opened: Opened) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened(sock)
        sock.settimeout(remaining(deadline))
        sock.connect(uri.path or "")
    except BaseException:
        sock.close()
        raise
    return sock


def _connect_tcp(uri: ConnectionUri, deadline: float | None, opened: Opened) -> socket.socket:
    addresses = _resolve(uri, deadline)
    first = socket.AF_INET6 if uri.ip_protocol_prefer == "ipv6" else socket.AF_INET
    addresses.sort(key=lambda address: address[0] != first)
    failure: OSError = OSError("the host has no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            opened(sock)
            set_options(sock, uri)
            sock.settimeout(remaining(deadline))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
            continue
        except BaseException:
            sock.close()
            raise
        send_unpaced(sock)
        return sock
    raise failure


def _resolve(uri: ConnectionUri, deadline: float | None) -> list[_Address]:
    """Return the addresses of the host. A lookup may take long and cannot be cancelled, so a thread does it."""
    answer: SimpleQueue[list[_Address] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(socket.getaddrinfo(uri.host, uri.port, type=socket.SOCK_STREAM))
        except OSError as error:
            answer.put(error)

    try:
        return socket.getaddrinfo(
            uri.host, uri.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )  # an address needs no lookup
    except socket.gaierror:
        threading.Thread(target=look_up, name="amps-resolve", daemon=True).start()
    try:
        found = answer.get(timeout=remaining(deadline))
    except Empty:
        raise TimeoutError(f"the name {uri.host} was not looked up in time") from None
    if isinstance(found, OSError):
        raise found
    return found


def _preflight(
    transport: SocketTransport, uri: ConnectionUri, request: bytes, deadline: float | None
) -> None:
    if not transport.send([request], deadline):
        raise TimedOutException(f"{uri.safe_text}: the HTTP preflight was not sent in time")
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = transport.receive(remaining(deadline))
        if data is None:
            raise TimedOutException(f"{uri.safe_text}: no answer to the HTTP preflight in time")
        if not len(data):
            raise ConnectionRefusedException(f"{uri.safe_text}: closed during the HTTP preflight")
        answer += bytes(data)
        check_length(uri, len(answer))
    transport._early = early_bytes(uri, answer)
