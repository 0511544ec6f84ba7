"""The highly available asyncio client: it chooses its server, reconnects and recovers by itself (client.md §9, §19.5).

An AsyncHAClient is an AsyncClient with another way to get a connection. A task makes attempts until the client is
connected and recovered, or gives up; there is at most one such task. What is tried, and when, is decided in
`amps.client.servers.failover`; what is sent, in the engine.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Any, NoReturn, Self

from amps.client.aio.client import AsyncClient
from amps.client.aio.connection import seconds_left
from amps.client.enums import DEFAULT, ConnectionState, Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.servers import RefusedSubscription, chooser_of
from amps.client.protocol.command import check_timeout
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.servers.choosers import ConnectionInfo, ServerChooser
from amps.client.servers.delays import DelayStrategy, ExponentialDelayStrategy
from amps.client.servers.failover import Attempt, Failover
from amps.client.stores import (
    FileBookmarkStore,
    FilePublishStore,
    MemoryBookmarkStore,
    MemoryPublishStore,
)
from amps.client.uri import without_password


class AsyncHAClient(AsyncClient):
    """A client for asyncio that keeps a connection to one of several servers.

    The arguments and the behaviour are those of `amps.client.HAClient`, without `dispatch`. Calls made between two
    connections wait, at most their `timeout`.
    """

    def __init__(
        self,
        name: str | None = None,
        servers: str | Iterable[str] | ServerChooser | None = None,
        *,
        delay_strategy: DelayStrategy | None = None,
        attempt_timeout: Timeout = 10.0,
        resume_streams: bool = True,
        failed_resubscribe_handler: RefusedSubscription | None = None,
        **client_args: Any,
    ) -> None:
        check_timeout(attempt_timeout)
        if client_args.get("bookmark_store") is None:
            client_args["bookmark_store"] = MemoryBookmarkStore()
        super().__init__(name, **client_args)
        self.attempt_timeout = attempt_timeout
        """Seconds for connecting and logging on, and for each step of the recovery; None = no limit."""
        self._resume_streams = resume_streams
        self._accepts_refusal = failed_resubscribe_handler
        self._failover = Failover(
            self.name, chooser_of(servers), delay_strategy or ExponentialDelayStrategy()
        )
        self._own_stores: list[PublishStore | BookmarkStore] = []
        self._run: asyncio.Task[None] | None = None
        self._run_error: Exception | None = None

    @classmethod
    def memory_backed(
        cls, name: str, servers: str | Iterable[str] | ServerChooser | None = None, **kw: Any
    ) -> Self:
        """Make a client with a MemoryPublishStore and a MemoryBookmarkStore: it survives the loss of servers."""
        return cls(
            name, servers, publish_store=MemoryPublishStore(), bookmark_store=MemoryBookmarkStore(), **kw
        )

    @classmethod
    def file_backed(
        cls,
        name: str,
        servers: str | Iterable[str] | ServerChooser | None = None,
        *,
        publish_path: str | os.PathLike[str],
        bookmark_path: str | os.PathLike[str],
        **kw: Any,
    ) -> Self:
        """Make a client with a FilePublishStore and a FileBookmarkStore, which it closes with itself: it survives the
        loss of servers and the death of its own process. Raises StoreException.
        """
        publish_store = FilePublishStore(publish_path)
        bookmark_store = FileBookmarkStore(bookmark_path)
        try:
            client = cls(name, servers, publish_store=publish_store, bookmark_store=bookmark_store, **kw)
        except BaseException:
            bookmark_store.close()
            publish_store.close()
            raise
        client._own_stores = [publish_store, bookmark_store]
        return client

    def __repr__(self) -> str:
        return f"<AsyncHAClient {self.name!r} {'RECONNECTING' if self.reconnecting else self.state.name}>"

    # State

    @property
    def server_chooser(self) -> ServerChooser:
        """The chooser of servers; a new one is asked from the next attempt on."""
        return self._failover.chooser

    @server_chooser.setter
    def server_chooser(self, chooser: ServerChooser) -> None:
        self._failover.chooser = chooser

    @property
    def delay_strategy(self) -> DelayStrategy:
        """The delay strategy; a new one is asked from the next attempt on."""
        return self._failover.delays

    @delay_strategy.setter
    def delay_strategy(self, strategy: DelayStrategy) -> None:
        self._failover.delays = strategy

    @property
    def disconnected(self) -> bool:
        """Whether there is no connection: before the first one, between two servers, and after the last."""
        return not self.connected

    @property
    def reconnecting(self) -> bool:
        """Whether the client is making a connection, or recovering on a new one."""
        return self._run is not None

    @property
    def connection_info(self) -> ConnectionInfo:
        """The server in use or tried last, the number of attempts, and the last error."""
        return self._failover.info

    # Connection

    async def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an AsyncHAClient connects and logs on in one step: call connect_and_logon()")

    async def logon(self, **kw: Any) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an AsyncHAClient connects and logs on in one step: call connect_and_logon()")

    def set_disconnect_handler(self, fn: Any) -> NoReturn:
        """Not for this client, which reconnects by itself. Raises UsageException."""
        raise UsageException(
            "an AsyncHAClient reconnects by itself: use add_connection_state_listener to watch it"
        )

    async def open(self, *, timeout: Timeout = None) -> Self:
        """Do `connect_and_logon`; return the client."""
        await self.connect_and_logon(timeout=timeout)
        return self

    async def connect_and_logon(self, *, timeout: Timeout = None) -> None:
        """Connect to one of the servers, log on and recover; return when the client is ready.

        By default the call tries until a server answers, or until the chooser or the delay strategy ends it
        (ConnectionException). After `timeout` seconds it raises TimedOutException. When it is cancelled, or its time is
        over, the attempts that it has begun end.
        """
        check_timeout(timeout)
        self._link.bind()
        run, mine = self._run, False
        if run is None:
            if self.connected:
                raise AlreadyConnectedException(f"client {self.name!r} is connected; disconnect first")
            self._engine.recovers = True
            run, mine = self._begin_run(), True
        try:
            done, _ = await asyncio.wait([run], timeout=timeout)
        except BaseException:
            if mine:
                self._stop(DisconnectedException("the call that connects was cancelled"))
            raise
        if not done:
            last = self.connection_info.last_error
            if mine:
                self._stop(DisconnectedException("no connection in time"))
            raise TimedOutException(f"no connection in time{f': {last}' if last is not None else ''}")
        if self._run_error is not None:
            raise self._run_error

    async def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Close the connection and end reconnecting; subscriptions end. The client may connect again."""
        if self._link.loop is not None:
            self.check_loop()
            self._stop(DisconnectedException("the client was disconnected"))
        await super().disconnect(timeout=timeout)

    async def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect; the client cannot be used again. Ends reconnecting at once. Otherwise like AsyncClient.close."""
        if not self._link.closing and self._link.loop is not None:
            self._stop(DisconnectedException("the client was closed"))
        try:
            await super().close(timeout=timeout)
        finally:
            stores, self._own_stores = self._own_stores, []
            for store in stores:
                store.close()

    def _stop(self, error: DisconnectedException) -> None:
        """End reconnecting; what waits for a connection fails, and routes end when the connection does."""
        run, self._run = self._run, None
        self._engine.give_up(None)
        self._failover.left()
        if run is not None:
            self._run_error = error
            run.cancel()
            self._link.abort()
        self._link.note_change()
        self._link.after_call()

    # Attempts

    def _begin_run(self) -> "asyncio.Task[None]":
        assert self._link.loop is not None
        self._run_error = None
        self._run = self._link.loop.create_task(self._make_attempts(), name=f"amps-reconnect:{self.name}")
        return self._run

    async def _make_attempts(self) -> None:
        run = asyncio.current_task()
        while self._run is run:
            try:
                attempt = self._failover.next_attempt()
                await asyncio.sleep(attempt.wait_s)
                error = await self._attempt(attempt)
                if error is None:
                    self._logger.info(
                        "client %s: connected to %s", self.name, without_password(attempt.uri)
                    )
                    self._call(self._failover.succeeded, self.server_version)
                    if self._engine.ready:
                        break
                    error = self._engine.lost_by or DisconnectedException("the connection was lost at once")
                self._logger.warning(
                    "client %s: no connection to %s: %s",
                    self.name, without_password(attempt.uri), str(error) or type(error).__name__,
                )  # fmt: skip
                self._failover.failed(error)
            except Exception as ending:  # the chooser or the delay strategy gives up, or has failed
                if self._run is run:
                    self._give_up(ending)
                return
        if self._run is run:
            self._run = None
            self._link.note_change()

    async def _attempt(self, attempt: Attempt) -> Exception | None:
        """Try a server; return why it failed, None: the client is ready."""
        seconds = check_timeout(self.attempt_timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            await self._link.connect(attempt.uri, deadline)
            self.uri = attempt.uri
            if self._receive_started is not None:
                self._call(self._receive_started)
            await super().logon(authenticator=attempt.authenticator, timeout=seconds_left(deadline))
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
                    self.name, refused.command.sub_id, refused.error,
                )  # fmt: skip
                engine.leave_out(refused)
                link.after_call()
                continue
            seen = (engine.recovery_progress, link.bytes_in)
            limit = check_timeout(self.attempt_timeout)
            deadline = None if limit is None else time.monotonic() + limit
            if not await link.wait_in(link.changed, deadline) and seen == (
                engine.recovery_progress,
                link.bytes_in,
            ):
                raise TimedOutException("the recovery of the connection did not end in time")

    def _give_up(self, error: Exception) -> None:
        reason = error if isinstance(error, AMPSException) else ConnectionException(repr(error))
        first = self.connection_info.since is None and self.state is not ConnectionState.DISCONNECTED
        self._run = None
        self._run_error = error
        self._engine.give_up(reason)
        self._failover.left()
        self._link.note_change()
        self._link.after_call()
        if self._exception_listener is not None:
            self._call(self._exception_listener, error)
        elif not first:
            self._logger.error("client %s: reconnecting has ended: %s", self.name, error)

    # Hooks of AsyncClient

    def _lost(self, failure: AMPSException | None) -> None:
        if failure is None or self._run is not None or not self._engine.recovers or self._link.closing:
            return
        self._logger.warning(
            "client %s: lost the connection to %s: %s",
            self.name, without_password(self.uri or ""), failure,
        )  # fmt: skip
        self._failover.lost(failure)
        self._begin_run()

    async def _await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        engine = self._engine
        if not engine.recovers or not engine.config.retry or asyncio.current_task() is self._run:
            raise refused
        while not engine.ready and engine.recovers:
            if not await self._link.wait_in(self._link.changed, deadline):
                raise refused
            self._link.check_usable()
        if not engine.ready:
            raise refused
