"""One connection of an asyncio client: the protocol object of its socket, and how it is opened."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from amps.client.blocking.transport import MAX_PREFLIGHT_ANSWER_BYTES, preflight_request, set_options
from amps.client.errors import AMPSException, ConnectionRefusedException, TimedOutException
from amps.client.uri import ConnectionUri
from amps.same_host import send_unpaced

HIGH_WATER_BYTES = 256 * 1024
"""The bytes that may wait in a connection before publishing waits."""


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

    # Calls of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.bytes_received(self, data)
        else:
            self._early += data
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
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

    def close(self) -> None:
        """Send the bytes kept, then close."""
        if self.transport is not None:
            self.transport.close()

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
            if len(self._early) > MAX_PREFLIGHT_ANSWER_BYTES:
                raise ConnectionRefusedException(f"{uri.safe_text}: an endless answer to the HTTP preflight")
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        head, _, rest = bytes(self._early).partition(b"\r\n\r\n")
        self._early = bytearray(rest)
        status = head.partition(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["101"]:
            raise ConnectionRefusedException(f"{uri.safe_text}: the HTTP preflight was answered {status!r}")


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
    addresses = await loop.getaddrinfo(uri.host, uri.port, type=socket.SOCK_STREAM)
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
        except BaseException:
            sock.close()
            raise
        else:
            return connection
    raise failure


def seconds_left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline on the monotonic clock, never negative; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
