"""Connections of the real network: accepting, dialling in both address families, TLS of the dialling side."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from amps.config.model_replication import ClientTls, DestinationTransport
from amps.same_host import send_unpaced
from amps.server import remedies
from amps.server.eventlog import EventLog
from amps.server.replication.link import Reader, Writer
from amps.server.replication.streams import Stream
from amps.server.shared.listeners import limit_versions

TLS_HANDSHAKE_S = 10.0
ACCEPTED_PER_WAKE_MAX = 16
RETRY_S = 1.0
HANDSHAKES_MAX = 64


def client_tls_context(tls: ClientTls) -> ssl.SSLContext:
    """The dialling side of TLS as configured. Raises OSError, ssl.SSLError.

    The certificate is checked against the CA alone: instances are known by the names in HELLO, not by host names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    limit_versions(context, tls.protocols)
    if tls.ciphers:
        context.set_ciphers(tls.ciphers)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.private_key, password=lambda: b"")
    if tls.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        if tls.ca_file is not None:
            context.load_verify_locations(cafile=str(tls.ca_file))
        if tls.ca_path is not None:
            for path in sorted(Path(tls.ca_path).glob("*.pem")):
                context.load_verify_locations(cafile=str(path))
    else:
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_of(transport: DestinationTransport) -> ssl.SSLContext | None:
    """The TLS settings of a destination's transport, None without TLS. Raises OSError, ssl.SSLError."""
    return client_tls_context(transport.tls) if transport.tls is not None else None


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None, prefers_ipv6: bool
) -> tuple[Reader, Writer, str]:
    """Connect to one of the addresses of a host: those of the preferred family first. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as unknown:
        raise OSError(f'unable to resolve specified InetAddr: "{host}:{port}" ({unknown.strerror})') from None
    preferred = socket.AF_INET6 if prefers_ipv6 else socket.AF_INET
    found = sorted(found, key=lambda each: each[0] != preferred)
    problem: OSError = OSError(f"{host} has no address")
    for family, _, _, _, address in dict.fromkeys(found):
        stream = Stream()
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, address)
            send_unpaced(connection)
            await loop.create_connection(
                _always(stream),
                sock=connection,
                ssl=tls,
                server_hostname=host if tls is not None else None,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if tls is not None else None,
            )
        except OSError as failure:
            problem = failure
            if isinstance(failure, ssl.SSLError) and failure.reason == "WRONG_VERSION_NUMBER":
                problem = OSError("the other side does not speak TLS there (amps-replication-secure)")
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return stream, stream, shown(address)
    raise problem


def _always(stream: Stream) -> Callable[[], Stream]:
    """A factory for the loop. What the loop returns is another object with TLS: the protocol of the TLS layer."""
    return lambda: stream


def shown(address: tuple[object, ...] | str) -> str:
    """An address in the usual notation."""
    if isinstance(address, str):
        return address or "local"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


class Accepting:
    """Takes connections from the listening sockets of the replication transport."""

    def __init__(
        self,
        name: str,
        sockets: list[socket.socket],
        tls: ssl.SSLContext | None,
        accept: Callable[[Reader, Writer, str], None],
        log: EventLog,
    ) -> None:
        self._name = name
        self._sockets = sockets
        self._tls = tls
        self._accept = accept
        self._log = log
        self._handshakes: set[asyncio.Task[None]] = set()
        self._failing = False
        self._loop: asyncio.AbstractEventLoop

    def begin(self) -> None:
        """Accept from now on."""
        self._loop = asyncio.get_running_loop()
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._take, listening)

    def stop(self) -> None:
        """Accept no more, and abandon the handshakes."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for task in list(self._handshakes):
            task.cancel()

    def _take(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_WAKE_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._pause(listening, problem)
                return
            self._failing = False
            if len(self._handshakes) >= HANDSHAKES_MAX:
                accepted.close()
                continue
            accepted.setblocking(False)
            send_unpaced(accepted)
            task = self._loop.create_task(self._make(accepted, shown(address)))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _pause(self, listening: socket.socket, problem: OSError) -> None:
        """The process has reached a limit: accept again later, when connections have ended."""
        if not self._failing:
            self._failing = True
            advice = remedies.for_system(problem.errno or errno.EIO)
            reason = f"{problem.strerror}; {advice}" if advice else str(problem.strerror)
            self._log.log("11-0004", transport=self._name, reason=reason)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(RETRY_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._take, listening)

    async def _make(self, accepted: socket.socket, address: str) -> None:
        loop = self._loop
        stream = Stream()
        try:
            await loop.connect_accepted_socket(
                _always(stream),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if self._tls is not None else None,
            )
        except (OSError, ssl.SSLError, TimeoutError) as problem:
            reason = str(problem) or type(problem).__name__
            self._log.log("11-0002", transport=self._name, address=address, reason=reason)
            accepted.close()
            return
        self._accept(stream, stream, address)
