"""How a worker takes connections from the listening sockets that all workers share.

A new connection wakes every worker, and the first worker awake could accept all pending connections. So each worker
compares its number of connections with those of the other workers, which are in shared memory. A worker that has
noticeably more than another one does not accept for a moment. After that it accepts some of the connections that no
other worker has accepted. A worker that has ended, or whose heartbeat is old, is not considered.

A connection counts from the moment it is accepted, through its TLS handshake, until it is lost.
"""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from amps.same_host import send_unpaced
from amps.server import remedies
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime

LEAVE_S = 0.01
RETRY_S = 1.0
TAKEN_PER_WAKE_MAX = 64
SILENT_NS = 1_000_000_000
_BURDENED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(slots=True, eq=False)
class _Listener:
    """One listening socket of one transport."""

    transport: str
    listening: socket.socket
    tls: ssl.SSLContext | None
    make_protocol: Callable[[], asyncio.BaseProtocol]
    retry: asyncio.TimerHandle | None = None
    failing: bool = False


class Acceptor:
    """The listening sockets of one worker, and its number of connections in shared memory."""

    def __init__(self, runtime: Runtime, index: int, log: EventLog) -> None:
        self._control = runtime.control
        self._others = [other for other in range(runtime.workers) if other != index]
        self._index = index
        self._log = log
        self._listeners: list[_Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._loop: asyncio.AbstractEventLoop
        self._stopped = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the number of connections to 0: the worker has none yet, and those of its predecessor are closed."""
        self._loop = loop
        self._count(0)

    def open(
        self,
        transport: str,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """Take connections from a listening socket, which this worker owns from now on."""
        listener = _Listener(transport, listening, tls, make_protocol)
        self._listeners.append(listener)
        self._watch(listener)

    def stop(self) -> None:
        """Take no more connections."""
        self._stopped = True
        for listener in self._listeners:
            if listener.retry is None:
                self._loop.remove_reader(listener.listening.fileno())
            else:
                listener.retry.cancel()
            listener.listening.close()
        self._listeners.clear()

    def lost(self) -> None:
        """Count down: a connection that was made has ended."""
        self._count(-1)

    # --- taking -----------------------------------------------------------------------------------------------

    def _watch(self, listener: _Listener) -> None:
        self._loop.add_reader(listener.listening.fileno(), self._take, listener, TAKEN_PER_WAKE_MAX)

    def _leave(self, listener: _Listener, for_s: float) -> None:
        """Stop accepting for `for_s` seconds. After that some connections are accepted even if other workers have
        fewer.
        """
        self._loop.remove_reader(listener.listening.fileno())
        listener.retry = self._loop.call_later(for_s, self._come_back, listener)

    def _come_back(self, listener: _Listener) -> None:
        listener.retry = None
        self._watch(listener)
        self._take(listener, self._lead_allowed(), always=True)

    def _take(self, listener: _Listener, at_most: int, always: bool = False) -> None:
        for _ in range(at_most):
            if not always and self._others_have_fewer():
                self._leave(listener, LEAVE_S)
                return
            try:
                accepted, peer = listener.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accepting_failed(listener, error)
                return
            listener.failing = False
            accepted.setblocking(False)
            send_unpaced(accepted)
            self._count(1)
            task = self._loop.create_task(self._make(listener, accepted, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _accepting_failed(self, listener: _Listener, error: OSError) -> None:
        """Log the failure and accept again later. Usually the process has reached its limit of open files: pending
        connections are accepted when others have closed.
        """
        if not listener.failing:
            listener.failing = True
            advice = remedies.for_system(error.errno)
            reason = f"{error.strerror}; {advice}" if advice else str(error.strerror)
            self._log.log("11-0004", transport=listener.transport, reason=reason)
        self._leave(listener, RETRY_S if error.errno in _BURDENED else LEAVE_S)

    async def _make(self, listener: _Listener, accepted: socket.socket, peer: object) -> None:
        """Perform the TLS handshake, if there is one, and make the connection."""
        try:
            await self._loop.connect_accepted_socket(listener.make_protocol, accepted, ssl=listener.tls)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._count(-1)
            if not self._stopped:
                address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
                reason = str(error) or type(error).__name__
                self._log.log("11-0002", transport=listener.transport, address=address, reason=reason)
            accepted.close()

    # --- sharing ----------------------------------------------------------------------------------------------

    def _count(self, change: int) -> None:
        self._connections += change
        self._control.set_connections(self._index, self._connections)

    def _lead_allowed(self) -> int:
        """By how many connections this worker may exceed another one. It grows, so that many new connections are
        accepted fast.
        """
        return 1 + self._connections // 16

    def _others_have_fewer(self) -> bool:
        """Whether a worker that is alive has so few connections that the pending ones are left to it."""
        control = self._control
        fair = self._connections - self._lead_allowed()
        if fair < 0:
            return False
        alive_since_ns = time.monotonic_ns() - SILENT_NS
        return any(
            control.connections(other) <= fair
            and control.transport_alive(other)
            and control.transport_heartbeat_ns(other) > alive_since_ns
            for other in self._others
        )
