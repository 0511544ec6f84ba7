"""One connection of an asyncio client: the protocol object of its socket, and how it is opened."""

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from amps.client.errors import AMPSException, ConnectionRefusedException, TimedOutException
from amps.client.frontend.dialling import (
    NO_TLS_HERE,
    NOT_LET_IN,
    SAID_NOTHING,
    check_length,
    early_bytes,
    preflight_request,
    set_options,
)
from amps.client.uri import ConnectionUri
from amps.same_host import send_unpaced

HIGH_WATER_BYTES = 256 * 1024
"""The bytes that may wait in a connection before publishing waits."""
FAREWELL_S = 0.05
"""How long a closing connection waits for the server to close, before it looks whether all bytes have arrived."""


class Receiver(Protocol):
    """The interface of the client that a connection uses."""

    def bytes_received(self, connection: "Connection", data: bytes) -> None:
        """Process received bytes."""

    def connection_ended(self, connection: "Connection", error: Exception | None) -> None:
        """Handle the end of the connection."""

    def writing_paused(self, connection: "Connection", paused: bool) -> None:
        """Note whether the peer reads too slowly."""


class Connection(asyncio.Protocol):
    """A connected socket. Until `attach`, it collects received bytes, for the HTTP preflight."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.blocked = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiver: Receiver | None = None
        self._early = bytearray()
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._dropping = False
        self._socket: Any = None
        self._silent = False
        """Whether the server has sent nothing yet. If it closes then, `_hint` says what may be wrong."""
        self._hint = ""

    # Calls of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # those of uvloop have another base class
        self._socket = transport.get_extra_info("socket")
        self._silent = self._socket.family != socket.AF_UNIX
        self._hint = SAID_NOTHING if transport.get_extra_info("sslcontext") is None else NOT_LET_IN
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._silent = False
        if self._receiver is not None:
            self._receiver.bytes_received(self, data)
        elif not self._dropping:
            self._early += data
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._silent and (exc is None or isinstance(exc, ConnectionResetError)):
            exc = ConnectionResetError(self._hint)
        self._error = exc
        if not self.ended.done():
            self.ended.set_result(None)
        self._wake()
        if self._receiver is not None:
            self._receiver.connection_ended(self, exc)

    def pause_writing(self) -> None:
        self.blocked = True
        if self._receiver is not None:
            self._receiver.writing_paused(self, True)

    def resume_writing(self) -> None:
        self.blocked = False
        if self._receiver is not None:
            self._receiver.writing_paused(self, False)

    # Calls of the client

    def attach(self, receiver: Receiver) -> None:
        """Pass received bytes and the end of the connection to a client from now on."""
        self._receiver = receiver
        early, self._early = bytes(self._early), bytearray()
        if early:
            receiver.bytes_received(self, early)
        if self.ended.done():
            receiver.connection_ended(self, self._error)

    def write(self, chunks: list[bytes]) -> None:
        """Send bytes, or keep them until the socket accepts them."""
        assert self.transport is not None
        self.transport.writelines(chunks)

    def read(self, going: bool) -> None:
        """Stop or continue receiving."""
        if self.transport is None or self.transport.is_closing():
            return
        if going:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    async def finish(self, timeout_s: float | None) -> None:
        """Send the bytes kept and close, within the time limit. Nothing else may be written from now on.

        Received bytes are read and dropped: if the socket were closed with unread bytes, the system would reset the
        connection, and the server might lose the bytes sent before.
        """
        transport = self.transport
        if transport is None or self.ended.done():
            return
        self._receiver = None
        self._dropping = True
        self.read(True)
        # Bytes of TLS wait in several buffers. They are empty if the system has had nothing to send twice in a row.
        quiet, wanted = 0, 1
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS has no half-closed connections
            transport.close()
            wanted = 2
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ended.done() and quiet < wanted:
                    await asyncio.wait([self.ended], timeout=FAREWELL_S)
                    quiet = quiet + 1 if self._all_arrived() else 0
        except TimeoutError:
            pass

    def _all_arrived(self) -> bool:
        """Whether the host of the server has acknowledged all bytes."""
        if self.unsent_bytes:
            return False
        try:
            answer = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
        except (OSError, ValueError):  # closed meanwhile, or not supported by the system
            return True
        return answer == bytes(len(answer))

    def abort(self) -> None:
        """Close at once; the bytes kept are dropped."""
        if self.transport is not None:
            self.transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes kept."""
        if self.transport is None or self.transport.is_closing():
            return 0
        return self.transport.get_write_buffer_size()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def preflight(self, uri: ConnectionUri, request: bytes) -> None:
        """Ask a proxy to let the connection through."""
        self.write([request])
        while b"\r\n\r\n" not in self._early:
            if self.ended.done():
                raise ConnectionRefusedException(f"{uri.safe_text}: closed during the HTTP preflight")
            check_length(uri, len(self._early))
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        self._early = bytearray(early_bytes(uri, bytes(self._early)))


async def open_connection(
    uri: ConnectionUri,
    *,
    timeout_s: float | None,
    tls: ssl.SSLContext | None,
    http_headers: Iterable[str] | Mapping[str, str],
) -> Connection:
    """Connect to the address of a connection string, within the time limit. Raises ConnectionException."""
    request = preflight_request(uri, http_headers) if uri.http_preflight else b""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await _connect(uri, tls)
            if request:
                await connection.preflight(uri, request)
    except BaseException as error:
        if connection is not None:
            connection.abort()
        if isinstance(error, TimeoutError):
            raise TimedOutException(f"{uri.safe_text}: the connection was not made in time") from error
        if isinstance(error, OSError | ValueError) and not isinstance(error, AMPSException):
            raise ConnectionRefusedException(f"cannot connect to {uri.safe_text}: {error}") from error
        raise
    return connection


async def _connect(uri: ConnectionUri, tls: ssl.SSLContext | None) -> Connection:
    loop = asyncio.get_running_loop()
    if uri.scheme == "unix":
        _, connection = await loop.create_unix_connection(Connection, uri.path or "")
        return connection
    addresses = await _resolve(uri)
    first = socket.AF_INET6 if uri.ip_protocol_prefer == "ipv6" else socket.AF_INET
    failure: OSError = OSError("the host has no address")
    for family, kind, protocol, _, address in sorted(addresses, key=lambda found: found[0] != first):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            set_options(sock, uri)
            await loop.sock_connect(sock, address)
            send_unpaced(sock)
            context = (tls or ssl.create_default_context()) if uri.scheme == "tcps" else None
            _, connection = await loop.create_connection(
                Connection, sock=sock, ssl=context, server_hostname=uri.host if context else None
            )
        except OSError as error:
            sock.close()
            failure = error
            if uri.scheme == "tcps" and isinstance(error, ConnectionResetError):
                failure = ConnectionResetError(NO_TLS_HERE)
        except BaseException:
            sock.close()
            raise
        else:
            if not uri.tcp_nodelay:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, False)  # asyncio has switched it on
            return connection
    raise failure


async def _resolve(uri: ConnectionUri) -> list[tuple[Any, ...]]:
    """Return the addresses of the host.

    A lookup may take long and cannot be cancelled, so a daemon thread does it: the end of the event loop, or of the
    program, would wait for a thread of the loop's executor.
    """
    try:
        return list(
            socket.getaddrinfo(uri.host, uri.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        )  # an address needs no lookup
    except socket.gaierror:
        pass
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

    def tell(addresses: list[tuple[Any, ...]], error: OSError | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses)

    def look_up() -> None:
        addresses: list[tuple[Any, ...]] = []
        failure: OSError | None = None
        try:
            addresses = list(socket.getaddrinfo(uri.host, uri.port, type=socket.SOCK_STREAM))
        except OSError as error:
            failure = error
        try:
            loop.call_soon_threadsafe(tell, addresses, failure)
        except RuntimeError:
            return  # the loop has been closed meanwhile

    threading.Thread(target=look_up, name="amps-resolve", daemon=True).start()
    return await found


def seconds_left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline on the monotonic clock, never negative; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
