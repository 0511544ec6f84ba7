"""Connecting and logging on, and what a client does that does not reconnect by itself."""

import asyncio
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from amps.client.aio.commanding import Commands
from amps.client.aio.connection import seconds_left
from amps.client.aio.handlers import cancels_task
from amps.client.aio.link import Link
from amps.client.enums import Timeout
from amps.client.errors import (
    AMPSException,
    DisconnectedException,
    DuplicateLogonException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.calls import before_logon
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings, check_part
from amps.client.protocol.command import check_text
from amps.client.protocol.engine_types import Ticket
from amps.client.protocol.message import Message
from amps.client.servers.auth import Authenticator, DefaultAuthenticator

T = TypeVar("T")


class Connector:
    """Makes connections of a link."""

    def __init__(
        self,
        link: Link,
        commands: Commands,
        handlers: EventHandlers,
        settings: ClientSettings,
        uri: str | None,
    ) -> None:
        self.uri = uri
        """The connection string of the next connection without one of its own, or of the last connection."""
        self._link = link
        self._commands = commands
        self._handlers = handlers
        self._settings = settings

    async def connect(self, uri: str | None, deadline: float | None) -> None:
        """Open a connection."""
        text = uri or self.uri
        if text is None:
            raise self._settings.missing_uri()
        await self._link.connect(text, deadline)
        self.uri = text
        if self._handlers.receive_started is not None:
            self._handlers.call(self._handlers.receive_started)

    async def log_on(
        self, authenticator: Authenticator | None, options: str | None, timeout: Timeout
    ) -> Message:
        """Log on over the connection; end it if that fails."""
        link, engine = self._link, self._link.engine
        link.check_usable()
        check_text("options", options or "")
        check_part("authenticator", authenticator, "authenticate", "retry", "completed")
        if link.uri is None or not engine.connected:
            raise before_logon(engine)
        authority = authenticator or self._settings.authenticator or DefaultAuthenticator()
        asked = type(authority) is not DefaultAuthenticator  # a subclass may supply another password
        username, secret = link.uri.user, link.uri.password
        deadline = self._settings.deadline(timeout)
        ticket: Ticket | None = None
        try:
            password = await result_of(authority.authenticate(username or "", secret or ""), deadline)
            while True:
                ticket = engine.logon(
                    time.monotonic(),
                    username,
                    password if asked or secret is not None else None,
                    self._settings.logon_options if options is None else options,
                    ticket,
                )
                ack = await self._commands.answer(ticket, deadline)
                if ack is not None:
                    break
                username, challenge = ticket.challenge or ("", "")
                password, asked = await result_of(authority.retry(username, challenge), deadline), True
            completed: Callable[..., Any] = authority.completed
            await result_of(completed(username or "", password, ack.reason or ""), deadline)
        except (DuplicateLogonException, UsageException):
            raise
        except BaseException:
            link.abort()
            raise
        return ack


class DisconnectHandler:
    """The policy of a client that does not reconnect by itself: it calls the application's handler, if there is one."""

    def __init__(self, client: "weakref.ref[Any]", link: Link, handlers: EventHandlers) -> None:
        self.handler: Callable[[Any, Any], Any] | None = None
        self._client = client
        self._link = link
        self._handlers = handlers

    async def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        raise refused

    def lost(self, failure: AMPSException | None, *, watched: bool) -> None:
        if failure is None or self._link.closing:
            return
        uri = self._link.uri
        server = uri.safe_text if uri is not None else ""
        self._handlers.connection_lost(failure, server, handled=self.handler is not None, watched=watched)
        if self.handler is not None:
            self._link.spawn(self._tell(failure))

    async def _tell(self, failure: AMPSException) -> None:
        handler, client = self.handler, self._client()
        if handler is None or client is None:
            return
        try:
            await result_of(handler(client, failure), None)
        except BaseException as error:
            if cancels_task(error):
                raise
            self._handlers.failed(handler, error)


async def result_of(value: T | Awaitable[T], deadline: float | None) -> T:
    """Return a value, or the result of an awaitable. Raises TimedOutException."""
    if not inspect.isawaitable(value):
        return value
    try:
        async with asyncio.timeout(seconds_left(deadline)) as limit:
            return await value
    except TimeoutError as error:
        if limit.expired():
            raise TimedOutException("logon: the authenticator did not answer in time") from error
        raise
