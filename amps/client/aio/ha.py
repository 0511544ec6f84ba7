"""The highly available asyncio client: it chooses its server, reconnects and recovers by itself (client.md §9, §19.5).

An AsyncHAClient is an AsyncClient with another policy about its connection, the Reconnector of `reconnecting`.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Self

from amps.client.aio.client import AsyncClient
from amps.client.aio.reconnecting import Reconnector
from amps.client.enums import DEFAULT, Timeout
from amps.client.errors import ConnectionException, DisconnectedException, UsageException
from amps.client.frontend.servers import RefusedSubscription, chooser_of
from amps.client.frontend.settings import check_part
from amps.client.protocol.command import check_seconds
from amps.client.servers.auth import Authenticator
from amps.client.servers.choosers import ConnectionInfo, ServerChooser
from amps.client.servers.delays import DelayStrategy, ExponentialDelayStrategy
from amps.client.servers.failover import Failover
from amps.client.stores import (
    FileBookmarkStore,
    FilePublishStore,
    MemoryBookmarkStore,
    MemoryPublishStore,
)


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
        check_seconds("attempt_timeout", attempt_timeout)
        check_part("delay_strategy", delay_strategy, "get_connect_wait_duration", "reset")
        chooser = chooser_of(servers)
        if client_args.get("bookmark_store") is None:
            client_args["bookmark_store"] = MemoryBookmarkStore()
        super().__init__(name, **client_args)
        self._commands.resume_streams = resume_streams
        failover = Failover(self.name, chooser, delay_strategy or ExponentialDelayStrategy())
        self._reconnector = Reconnector(
            self._link, self._connector, self._handlers, failover, attempt_timeout, failed_resubscribe_handler
        )
        self._link.policy = self._reconnector

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
        client._reconnector.own_stores = [publish_store, bookmark_store]
        return client

    def __repr__(self) -> str:
        return f"<AsyncHAClient {self.name!r} {'RECONNECTING' if self.reconnecting else self.state.name}>"

    # State

    @property
    def server_chooser(self) -> ServerChooser:
        """The chooser of servers; a new one is asked from the next attempt on."""
        return self._reconnector.failover.chooser

    @server_chooser.setter
    def server_chooser(self, chooser: ServerChooser) -> None:
        self._reconnector.failover.chooser = chooser_of(chooser)

    @property
    def delay_strategy(self) -> DelayStrategy:
        """The delay strategy; a new one is asked from the next attempt on."""
        return self._reconnector.failover.delays

    @delay_strategy.setter
    def delay_strategy(self, strategy: DelayStrategy) -> None:
        check_part("delay_strategy", strategy, "get_connect_wait_duration", "reset")
        self._reconnector.failover.delays = strategy

    @property
    def attempt_timeout(self) -> Timeout:
        """Seconds for connecting and logging on, and for each step of the recovery; may be set."""
        return self._reconnector.attempt_timeout

    @attempt_timeout.setter
    def attempt_timeout(self, timeout: Timeout) -> None:
        self._reconnector.attempt_timeout = check_seconds("attempt_timeout", timeout)

    @property
    def disconnected(self) -> bool:
        """Whether there is no connection: before the first one, between two servers, and after the last."""
        return not self.connected

    @property
    def reconnecting(self) -> bool:
        """Whether the client is making a connection, or recovering on a new one."""
        return self._reconnector.run is not None

    @property
    def connection_info(self) -> ConnectionInfo:
        """The server in use or tried last, the number of attempts, and the last error."""
        return self._reconnector.failover.info

    # Connection

    async def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an AsyncHAClient connects and logs on in one step: call connect_and_logon()")

    async def logon(
        self,
        *,
        authenticator: Authenticator | None = None,
        options: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an AsyncHAClient connects and logs on in one step: call connect_and_logon()")

    def set_disconnect_handler(
        self, fn: Callable[[AsyncClient, ConnectionException], object] | None
    ) -> NoReturn:
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
        await self._reconnector.connect(timeout)

    async def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Close the connection and end reconnecting; subscriptions end. The client may connect again.

        Otherwise like AsyncClient.disconnect.
        """
        if self._link.loop is not None:
            self._link.check_loop()
            self._reconnector.stop(DisconnectedException("the client was disconnected"))
        await super().disconnect(timeout=timeout)

    async def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect; the client cannot be used again. Ends reconnecting at once. Otherwise like AsyncClient.close."""
        if not self._link.closing and self._link.loop is not None:
            self._reconnector.stop(DisconnectedException("the client was closed"))
        try:
            await super().close(timeout=timeout)
        finally:
            self._reconnector.close_stores()
