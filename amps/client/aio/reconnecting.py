"""Making a connection and making it again after a loss, for AsyncHAClient (client.md §9, §19.5).

A task makes attempts until the client is connected and recovered, or gives up; there is at most one such task. What is
tried, and when, is decided in `amps.client.servers.failover`; what is sent, in the engine.
"""

import asyncio
import time

from amps.client.aio.connecting import Connector
from amps.client.aio.connection import seconds_left
from amps.client.aio.handlers import cancels_task
from amps.client.aio.link import Link
from amps.client.enums import ConnectionState, Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
)
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.servers import RefusedSubscription
from amps.client.protocol.command import check_timeout
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.servers.failover import Attempt, Failover
from amps.client.uri import without_password


class Reconnector:
    """The policy of a client that chooses its server and reconnects by itself."""

    def __init__(
        self,
        link: Link,
        connector: Connector,
        handlers: EventHandlers,
        failover: Failover,
        attempt_timeout: Timeout,
        accepts_refusal: RefusedSubscription | None,
    ) -> None:
        self.attempt_timeout = attempt_timeout
        self.failover = failover
        self.run: asyncio.Task[None] | None = None
        """The task that makes attempts."""
        self.own_stores: list[PublishStore | BookmarkStore] = []
        """The stores that are closed with the client."""
        self._link = link
        self._engine = link.engine
        self._connector = connector
        self._handlers = handlers
        self._name = handlers.name
        self._logger = handlers.logger
        self._accepts_refusal = accepts_refusal
        self._error: Exception | None = None

    async def connect(self, timeout: Timeout) -> None:
        """Connect, log on and recover, or wait until another task has done so."""
        check_timeout(timeout)
        self._link.bind()
        run, mine = self.run, False
        if run is None:
            if self._engine.connected:
                raise AlreadyConnectedException(f"client {self._name!r} is connected; disconnect first")
            self._engine.recovers = True
            run, mine = self._begin(), True
        try:
            done, _ = await asyncio.wait([run], timeout=timeout)
        except BaseException:
            if mine:
                self.stop(DisconnectedException("the call that connects was cancelled"))
            raise
        if not done:
            last = self.failover.info.last_error
            if mine:
                self.stop(DisconnectedException("no connection in time"))
            raise TimedOutException(f"no connection in time{f': {last}' if last is not None else ''}")
        if self._error is not None:
            raise self._error

    def stop(self, error: DisconnectedException) -> None:
        """End reconnecting; what waits for a connection fails, and routes end when the connection does."""
        run, self.run = self.run, None
        self._handlers.warn_of_unsent(self._engine.unsent_count)
        self._engine.give_up(None)
        self._handlers.call(self.failover.left)
        if run is not None:
            self._error = error
            run.cancel()
            self._link.abort()
        self._link.waits.note_change()
        self._link.after_call()

    def close_stores(self) -> None:
        """Close the stores that belong to the client."""
        stores, self.own_stores = self.own_stores, []
        for store in stores:
            store.close()

    # Attempts

    def _begin(self) -> "asyncio.Task[None]":
        assert self._link.loop is not None
        self._error = None
        self.run = self._link.loop.create_task(self._make_attempts(), name=f"amps-reconnect:{self._name}")
        return self.run

    async def _make_attempts(self) -> None:
        run = asyncio.current_task()
        while self.run is run:
            try:
                attempt = self.failover.next_attempt()
                await asyncio.sleep(attempt.wait_s)
                error = await self._attempt(attempt)
                if error is None:
                    self._logger.info("client %s: connected to %s", self._name, without_password(attempt.uri))
                    self._handlers.call(self.failover.succeeded, self._engine.server_version)
                    if self._engine.ready:
                        break
                    error = self._engine.lost_by or DisconnectedException("the connection was lost at once")
                self._logger.warning(
                    "client %s: no connection to %s: %s",
                    self._name, without_password(attempt.uri), str(error) or type(error).__name__,
                )  # fmt: skip
                self.failover.failed(error)
            except BaseException as ending:  # the chooser or the delay strategy gives up, or has failed
                if cancels_task(ending):
                    raise
                if self.run is run:
                    self._give_up(ending)
                return
        if self.run is run:
            self.run = None
            self._link.waits.note_change()

    async def _attempt(self, attempt: Attempt) -> Exception | None:
        """Try a server; return why it failed, None: the client is ready."""
        seconds = check_timeout(self.attempt_timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            await self._connector.connect(attempt.uri, deadline)
            await self._connector.log_on(attempt.authenticator, None, seconds_left(deadline))
            await self._recover()
        except Exception as error:
            self._link.abort()  # what survives a loss is kept for the next attempt
            return error
        return None

    async def _recover(self) -> None:
        """Wait until the engine has recovered; the limit of time begins again with each progress."""
        engine, link = self._engine, self._link
        engine.recover(time.monotonic())
        link.after_call()
        while not engine.ready:
            if not engine.logged_on:
                raise engine.lost_by or DisconnectedException("the connection was lost during its recovery")
            refused = engine.refusal
            if refused is not None:
                accepts = self._accepts_refusal
                if accepts is None or not accepts(refused.command, refused.error):
                    raise refused.error
                self._logger.warning(
                    "client %s: the subscription %s is not entered again: %s",
                    self._name, refused.command.sub_id, refused.error,
                )  # fmt: skip
                engine.leave_out(refused)
                link.after_call()
                continue
            seen = (engine.recovery_progress, link.bytes_in)
            limit = check_timeout(self.attempt_timeout)
            deadline = None if limit is None else time.monotonic() + limit
            if not await link.waits.wait_in(link.waits.changed, deadline) and seen == (
                engine.recovery_progress,
                link.bytes_in,
            ):
                raise TimedOutException("the recovery of the connection did not end in time")

    def _give_up(self, error: BaseException) -> None:
        reason = error if isinstance(error, AMPSException) else ConnectionException(repr(error))
        first = self.failover.info.since is None and self._handlers.state is not ConnectionState.DISCONNECTED
        self.run = None
        self._error = error if isinstance(error, Exception) else reason
        self._handlers.warn_of_unsent(self._engine.unsent_count)
        self._engine.give_up(reason)
        self._handlers.call(self.failover.left)
        self._link.waits.note_change()
        self._link.after_call()
        if self._handlers.exception_listener is not None:
            self._handlers.call(self._handlers.exception_listener, error)
        elif not first:
            self._logger.error("client %s: reconnecting has ended: %s", self._name, error)

    # The policy

    def lost(self, failure: AMPSException | None, *, watched: bool) -> None:
        server = without_password(self._connector.uri or "")
        if failure is not None and not self._link.closing:
            self._handlers.connection_lost(failure, server, handled=self._engine.recovers, watched=watched)
        if failure is None or self.run is not None or not self._engine.recovers or self._link.closing:
            return
        self._logger.warning("client %s: lost the connection to %s: %s", self._name, server, failure)
        self.failover.lost(failure)
        self._begin()

    async def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        engine, link = self._engine, self._link
        if not engine.recovers or not engine.config.retry or asyncio.current_task() is self.run:
            raise refused
        while not engine.ready and engine.recovers:
            if not await link.waits.wait_in(link.waits.changed, deadline):
                raise refused
            link.check_usable()
        if not engine.ready:
            raise refused
