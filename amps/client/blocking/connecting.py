"""Connecting and logging on, and what a client does that does not reconnect by itself."""

import socket
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from amps.client.blocking.asking import ask
from amps.client.blocking.changes import Signal
from amps.client.blocking.commanding import Commands
from amps.client.blocking.deadlines import AT_ONCE, left_until
from amps.client.blocking.runtime import Runtime
from amps.client.blocking.transport import SocketTransport, dial
from amps.client.blocking.turns import Turn
from amps.client.enums import Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    DisconnectedException,
    DuplicateLogonException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.calls import before_logon
from amps.client.frontend.settings import ClientSettings, check_part
from amps.client.protocol.command import check_text
from amps.client.protocol.engine_types import Ticket
from amps.client.protocol.message import Message
from amps.client.servers.auth import Authenticator, DefaultAuthenticator
from amps.client.uri import parse_uri

T = TypeVar("T")


class Connector:
    """Makes connections of a runtime, one at a time."""

    def __init__(self, runtime: Runtime, commands: Commands, settings: ClientSettings, uri: str | None) -> None:
        self.uri = uri
        """The connection string of the next connection without one of its own, or of the last connection."""
        self._runtime = runtime
        self._wire = runtime.wire
        self._engine = runtime.wire.engine
        self._commands = commands
        self._settings = settings
        self._connecting = Turn()

    def connect(
        self,
        uri: str | None,
        deadline: float | None,
        *,
        opened: Callable[[socket.socket], object] = lambda sock: None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Open a connection.

        `opened` is called with each socket before it is connected, `check` with the engine lock held, when the
        connection is made; both may raise to end the attempt.
        """
        wire, connecting, claim = self._wire, self._connecting, object()
        wire.check_usable()
        try:
            if not connecting.take(claim, deadline):
                raise TimedOutException("connect: another thread is still connecting this client")
            if wire.leaving and wire.transport is not None:
                raise AlreadyConnectedException(
                    f"client {wire.name!r} is still closing its connection, which ends when this handler returns"
                )
            if self._engine.connected:
                raise AlreadyConnectedException(f"client {wire.name!r} is connected; disconnect first")
            text = uri or self.uri
            if text is None:
                raise self._settings.missing_uri()
            parsed = parse_uri(text)
            transport = dial(
                parsed,
                timeout_s=left_until(deadline),
                tls=self._settings.tls,
                http_headers=self._settings.http_headers,
                opened=opened,
            )

            def made(now: float) -> None:
                check()
                self._engine.connection_made(now, parsed)

            self.uri = text
            wire.uri = parsed
            self._runtime.attach(transport, made)
        finally:
            if connecting.holder is claim:
                connecting.holder = None
                connecting.wake()

    def log_on(
        self,
        transport: SocketTransport | None,
        authenticator: Authenticator | None,
        options: str | None,
        timeout: Timeout,
    ) -> Message:
        """Log on over this connection; an authenticator may take so long that it is not the client's any more."""
        check_text("options", options or "")
        check_part("authenticator", authenticator, "authenticate", "retry", "completed")
        wire, engine = self._wire, self._engine
        if wire.uri is None or transport is None or not engine.connected:
            raise before_logon(engine)
        authority = authenticator or self._settings.authenticator or DefaultAuthenticator()
        asked = type(authority) is not DefaultAuthenticator  # a subclass may supply another password
        username, secret = wire.uri.user, wire.uri.password
        deadline = self._settings.deadline(timeout)
        again = engine.logged_on  # the server will refuse it, and the connection stays

        def answer_of(call: Callable[[], T]) -> T:
            if type(authority) is DefaultAuthenticator:
                return call()
            try:
                return ask(wire, call, "logon: the authenticator", deadline)
            except BaseException:
                if not again:
                    self._runtime.leave(AT_ONCE, transport)
                raise

        password = answer_of(partial(authority.authenticate, username or "", secret or ""))
        self._runtime.sender.make_room("logon", deadline)
        ticket: Ticket | None = None
        try:
            while True:
                with wire.lock:
                    if wire.transport is not transport:
                        engine.check_connected("logon")
                        raise DisconnectedException("logon: the connection was lost")
                    ticket = engine.logon(
                        time.monotonic(),
                        username,
                        password if asked or secret is not None else None,
                        self._settings.logon_options if options is None else options,
                        ticket,
                    )
                    ticket.waiter = Signal()
                self._runtime.sender.send()
                ack = self._commands.answer(ticket, left_until(deadline))
                if ack is not None:
                    break
                username, challenge = ticket.challenge or ("", "")
                password, asked = answer_of(partial(authority.retry, username, challenge)), True
            answer_of(partial(authority.completed, username or "", password, ack.reason or ""))
        except (DuplicateLogonException, UsageException):
            raise
        except BaseException:
            self._runtime.leave(AT_ONCE, transport)
            raise
        self._runtime.sender.send_once()  # the heartbeat command is sent before any other call
        return ack


class DisconnectHandler:
    """The policy of a client that does not reconnect by itself: it calls the application's handler, if there is one."""

    def __init__(self, client: "weakref.ref[Any]", runtime: Runtime) -> None:
        self.handler: Callable[[Any, Any], object] | None = None
        self._client = client
        self._wire = runtime.wire
        self._handlers = runtime.wire.handlers

    def makes_connection(self) -> bool:
        return False

    def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        raise refused

    def lost(self, error: AMPSException, *, watched: bool) -> None:
        client, uri = self._client(), self._wire.uri
        server = uri.safe_text if uri is not None else ""
        self._handlers.connection_lost(error, server, handled=self.handler is not None, watched=watched)
        if self.handler is not None and client is not None:
            self._handlers.call(self.handler, client, error)

    def after_loss(self) -> None:
        return None

    def closed(self) -> None:
        """It owns nothing."""
