"""What opening a connection takes in all front ends: the options of the socket, the exchange with an HTTP proxy, and
what to say of a server that closes the connection at once.
"""

import socket
import struct
from collections.abc import Iterable, Mapping

from amps.client.errors import ConnectionRefusedException, InvalidTransportOptionsException
from amps.client.uri import ConnectionUri

SAID_NOTHING = "the server closed it without a word: does its port expect TLS (tcps)?"
NO_TLS_HERE = "the server closed the connection in the TLS handshake: does it expect TLS here?"
# With TLS 1.3 a server checks the client's certificate after the client has finished the handshake.
NOT_LET_IN = "the server closed it right after the TLS handshake: does it want a certificate that it knows?"
MAX_ANSWER_BYTES = 64 * 1024
"""The longest answer of a proxy, in bytes."""


def set_options(sock: socket.socket, uri: ConnectionUri) -> None:
    """Set the options of the connection string on a new TCP socket. Raises InvalidTransportOptionsException."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, uri.tcp_keepalive)
        # On by default: the client itself combines bursts. Nagle's algorithm would delay a small command after another
        # one until the server acknowledges the first, which may take 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, uri.tcp_nodelay)
        if uri.tcp_rcvbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, uri.tcp_rcvbuf)
        if uri.tcp_sndbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, uri.tcp_sndbuf)
        if uri.tcp_linger is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, uri.tcp_linger))
        if uri.bind is not None:
            sock.bind((uri.bind, 0))
    except (OSError, OverflowError) as error:
        raise InvalidTransportOptionsException(f"{uri.safe_text}: {error}") from error


def preflight_request(uri: ConnectionUri, headers: Iterable[str] | Mapping[str, str]) -> bytes:
    """The HTTP request that asks a proxy to let the connection through."""
    path = "/".join(part for part in (uri.proxy_path, uri.protocol, uri.message_type or "") if part)
    host = f"[{uri.host}]" if ":" in uri.host else uri.host
    lines = [f"GET /{path} HTTP/1.1", f"Host: {host}:{uri.port}", "Connection: Upgrade", "Upgrade: websocket"]
    if isinstance(headers, Mapping):
        lines += [f"{name}: {value}" for name, value in headers.items()]
    else:
        lines += list(headers)
    for line in lines:
        if "\r" in line or "\n" in line:
            raise InvalidTransportOptionsException(f"an HTTP header cannot hold a line break: {line!r}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def check_length(uri: ConnectionUri, received_bytes: int) -> None:
    """Raise ConnectionRefusedException if a proxy's answer does not end."""
    if received_bytes > MAX_ANSWER_BYTES:
        raise ConnectionRefusedException(f"{uri.safe_text}: the HTTP preflight answer never ends")


def early_bytes(uri: ConnectionUri, answer: bytes) -> bytes:
    """Check a proxy's whole answer; return the bytes received behind it. Raises ConnectionRefusedException."""
    head, _, early = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    words = status.split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or words[1] != "101":
        raise ConnectionRefusedException(f"{uri.safe_text}: the HTTP preflight was answered {status!r}")
    return early
