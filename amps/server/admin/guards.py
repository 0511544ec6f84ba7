"""Limits for connections of the HTTP server, which are few and short: slow or surplus clients are disconnected.

A guard stands between a connection and the protocol that the HTTP library made for it, and passes everything on. Each
connection has one request. Its head must arrive soon, and its answer must be read soon. The time for making the answer
is not the client's fault, and has no limit here.
"""

import asyncio
from collections.abc import Callable

CONNECTIONS_MAX = 100
REQUEST_WAIT_S = 10.0
ANSWER_WAIT_S = 30.0


class Guards:
    """All connections. `closed(address, reason)` is called for each that is disconnected by a guard."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], closed: Callable[[str, str], None]
    ) -> None:
        self.make_protocol = make_protocol
        self.closed = closed
        self.by_transport: dict[asyncio.BaseTransport, Guard] = {}

    def make(self) -> "Guard":
        """Make the protocol of a new connection."""
        return Guard(self)

    def asked(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the head of the request has arrived."""
        guard = self.by_transport.get(transport) if transport is not None else None
        if guard is not None:
            guard.wait(None, "")

    def answered(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the answer is being sent."""
        guard = self.by_transport.get(transport) if transport is not None else None
        if guard is not None:
            guard.wait(ANSWER_WAIT_S, "the answer was not taken in time")


class Guard(asyncio.Protocol):
    """The guard of one connection."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.BaseTransport
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, seconds: float | None, reason: str) -> None:
        """Disconnect after that time; None: without a limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._cut_off, reason)

    def _cut_off(self, reason: str) -> None:
        self._guards.closed(shown_peer(self._transport), reason)
        self._transport.abort()  # type: ignore[attr-defined]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection unless there are too many."""
        self._transport = transport
        if len(self._guards.by_transport) >= CONNECTIONS_MAX:
            self._cut_off(f"there are {CONNECTIONS_MAX} connections already")
            return
        self._guards.by_transport[transport] = self
        self._inner = self._guards.make_protocol()
        self.wait(REQUEST_WAIT_S, "the request did not come in time")
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self.wait(None, "")
        self._guards.by_transport.pop(self._transport, None)
        if self._inner is not None:
            self._inner.connection_lost(exc)


def shown_peer(transport: asyncio.BaseTransport | None) -> str:
    """The address of the client."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple):
        return "unknown"
    return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
