"""Listening sockets and TLS for configured transports.

The supervisor opens the sockets before it forks. So a port in use is an error at start, every worker accepts from the
same socket, and connections wait in its queue while a worker is restarted.
"""

import contextlib
import errno
import os
import socket
import ssl
import stat
from pathlib import Path

from amps.config import TlsConfig, TransportConfig

BACKLOG = 1024
_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_OFF = {
    "TLSv1": ssl.OP_NO_TLSv1,
    "TLSv1.1": ssl.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.OP_NO_TLSv1_3,
}


class ListenFailure(OSError):
    """A transport cannot listen; the text names transport and address."""


def open_listeners(transport: TransportConfig) -> list[socket.socket]:
    """The listening sockets of one transport; none while it is disabled. Raises ListenFailure."""
    if not transport.enabled:
        return []
    try:
        if transport.type == "amps-unix":
            return [_unix_listener(transport)]
        return _tcp_listeners(transport)
    except OSError as error:
        hint = " (another program uses it)" if error.errno == errno.EADDRINUSE else ""
        reason = error.strerror or str(error)
        text = f"transport {transport.name} cannot listen on {transport.address}: {reason}{hint}"
        raise ListenFailure(error.errno or 0, text) from error


def _unix_listener(transport: TransportConfig) -> socket.socket:
    path = transport.file_name
    assert path is not None
    _remove_stale_socket(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listening.bind(str(path))
    if transport.file_mask is not None:
        os.chmod(path, transport.file_mask)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def _remove_stale_socket(path: Path) -> None:
    """Remove a socket file left by a killed server, to which no process listens. Raises OSError if one does."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EEXIST, "a file that is no socket has that name")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise OSError(errno.EADDRINUSE, "Address already in use")


def _tcp_listeners(transport: TransportConfig) -> list[socket.socket]:
    """One socket; for a port without a host one that accepts IPv6 and IPv4, or only IPv4 where there is no IPv6."""
    port = transport.port
    assert port is not None
    host = transport.host
    if host is None:
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):
                return [_bound(socket.AF_INET6, ("::", port), dual=True)]
        return [_bound(socket.AF_INET, ("0.0.0.0", port), dual=False)]
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return [_bound(family, (str(address[0]), port), dual=False)]


def _bound(family: int, address: tuple[str, int], dual: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def limit_versions(context: ssl.SSLContext, protocols: tuple[str, ...]) -> None:
    """Allow only some versions of TLS."""
    wanted = [version for version in protocols if version in _VERSIONS]
    context.minimum_version = min(_VERSIONS[version] for version in wanted)
    context.maximum_version = max(_VERSIONS[version] for version in wanted)
    for version, option in _OFF.items():
        if version not in wanted:
            context.options |= option


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """The server side of TLS as configured (operations.md §3). Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    limit_versions(context, tls.protocols)
    if tls.ciphers:
        context.set_ciphers(tls.ciphers)
    # An encrypted key is an error; without a password given here OpenSSL would ask for one on the terminal.
    context.load_cert_chain(tls.certificate, tls.private_key, password=lambda: b"")
    if tls.verify_client:
        context.verify_mode = ssl.CERT_REQUIRED
        if tls.ca_file is not None:
            context.load_verify_locations(cafile=str(tls.ca_file))
        if tls.ca_path is not None:
            for path in sorted(Path(tls.ca_path).glob("*.pem")):
                context.load_verify_locations(cafile=str(path))
    return context
