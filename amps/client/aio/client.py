"""The asyncio client: the same calls as the blocking `Client`, as coroutines.

A call that waits for the server ends at its `timeout` with TimedOutException, also while the server reads nothing. When
a waiting call is cancelled, its command is abandoned. A publish suspends only if the server does not read what was sent
before, if the publish store is full, and once per 64 KiB, so that the event loop reads acknowledgements.

This module has the public calls only. Each part does one thing: `connecting` makes connections, `commanding` sends
commands and waits for answers, `publishing` publishes, `link` has the connection, and the engine
(`amps.client.protocol`) the rules of the protocol.
"""

import logging
import ssl
import time
import weakref
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self, Unpack, overload

from amps.client.aio.commanding import Commands
from amps.client.aio.connecting import Connector, DisconnectHandler
from amps.client.aio.connection import seconds_left
from amps.client.aio.link import Link
from amps.client.aio.publishing import Publisher
from amps.client.aio.streams import StreamRequest
from amps.client.enums import DEFAULT, MOST_RECENT, AckType, Bookmark, ConnectionState, Data, Timeout
from amps.client.errors import ConnectionException
from amps.client.frontend.calls import (
    bookmark_subscription,
    check_handler,
    consumption,
    delete_command,
    discard,
    pause_command,
    persisted_publish,
    publish_template,
    subscription,
)
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings, positive
from amps.client.frontend.transactions import Transaction
from amps.client.payloads.codecs import Codec
from amps.client.protocol.command import Command, TransactionCommand, check_number, check_seconds
from amps.client.protocol.engine_types import ClientStats, Route, RouteKind, State
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import (
    BookmarkSubscribeArgs,
    CallSettings,
    OnFull,
    PublishArgs,
    QueryArgs,
    SubscribeArgs,
    is_plain,
)
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.servers.auth import Authenticator


class AsyncClient:
    """A connection to a server for asyncio. Use `async with client:`, or `open` and `close`.

    The arguments are those of `amps.client.Client` (client.md §19.3), without `dispatch`. Handlers may be plain
    functions, which run when a message is received, or coroutine functions, which may await calls of the same client.
    All calls must be made on the event loop on which the client was opened. An authenticator's methods and the
    disconnect handler may be coroutine functions, too. Times are in seconds; None = no limit. Calls raise what those of
    `amps.client.Client` raise.
    """

    def __init__(
        self,
        name: str | None = None,
        uri: str | None = None,
        *,
        authenticator: Authenticator | None = None,
        publish_store: PublishStore | None = None,
        bookmark_store: BookmarkStore | None = None,
        subscription_manager: SubscriptionManager | None = None,
        codec: Codec | str | None = None,
        timeout: Timeout = 10.0,
        heartbeat: float | None = None,
        heartbeat_timeout: float | None = None,
        auto_ack: bool = False,
        ack_batch_size: int = 0,
        ack_timeout: float | None = None,
        batch_size: int = 10,
        max_depth: int = 10_000,
        on_full: OnFull = "pause",
        retry_on_disconnect: bool = True,
        logon_options: str = "",
        logon_correlation: str | None = None,
        tls: ssl.SSLContext | None = None,
        http_headers: Iterable[str] | Mapping[str, str] = (),
        max_message_size: int = 200 * 2**20,
        logger: logging.Logger | None = None,
    ) -> None:
        settings = ClientSettings(
            name=name, authenticator=authenticator, publish_store=publish_store,
            bookmark_store=bookmark_store, subscription_manager=subscription_manager, codec=codec,
            timeout=timeout, auto_ack=auto_ack, heartbeat=heartbeat, heartbeat_timeout=heartbeat_timeout,
            ack_batch_size=ack_batch_size, ack_timeout=ack_timeout, batch_size=batch_size,
            max_depth=max_depth, on_full=on_full, retry_on_disconnect=retry_on_disconnect,
            logon_options=logon_options, logon_correlation=logon_correlation, tls=tls,
            http_headers=http_headers, max_message_size=max_message_size, logger=logger,
        )  # fmt: skip
        self._settings = settings
        self._handlers = EventHandlers(settings.name, settings.logger)
        self._link = Link(settings, self._handlers)
        self._engine = self._link.engine
        self._commands = Commands(self._link, self._handlers, settings)
        self._publisher = Publisher(self._link, self._commands, settings)
        self._outbox = self._engine.outbox
        self._connector = Connector(self._link, self._commands, self._handlers, settings, uri)
        self._disconnect_handler = DisconnectHandler(weakref.ref(self), self._link, self._handlers)
        self._link.policy = self._disconnect_handler
        if publish_store is not None:
            publish_store.set_discard_listener(self._link.waits.note_discard)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.name!r} {self.state.name}>"

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # State

    @property
    def name(self) -> str:
        """The client name."""
        return self._settings.name

    @property
    def uri(self) -> str | None:
        """The connection string of the last connection, else the one given to the client; may be set."""
        return self._connector.uri

    @uri.setter
    def uri(self, uri: str | None) -> None:
        self._connector.uri = uri

    @property
    def timeout(self) -> Timeout:
        """Seconds that calls without a `timeout` wait for the server; None = for ever. May be set."""
        return self._settings.timeout

    @timeout.setter
    def timeout(self, timeout: Timeout) -> None:
        self._settings.timeout = check_seconds("timeout", timeout)

    @property
    def auto_ack(self) -> bool:
        """Whether messages of queues are acknowledged automatically, for later subscriptions; may be set."""
        return self._settings.auto_ack

    @auto_ack.setter
    def auto_ack(self, enabled: bool) -> None:
        self._settings.auto_ack = enabled

    @property
    def publish_store(self) -> PublishStore | None:
        """The publish store, None without one."""
        return self._settings.publish_store

    @property
    def bookmark_store(self) -> BookmarkStore | None:
        """The bookmark store, None without one."""
        return self._settings.bookmark_store

    @property
    def codec(self) -> Codec:
        """The codec for bodies: the one given to the client, else the one of the message type."""
        return self._settings.codec_of(self._link.uri)

    @property
    def connected(self) -> bool:
        """Whether there is a connection, logged on or not."""
        return self._engine.connected

    @property
    def logged_on(self) -> bool:
        """Whether the connection is logged on."""
        return self._engine.logged_on

    @property
    def state(self) -> ConnectionState:
        """The last connection state that was reached."""
        return self._handlers.state

    @property
    def server_version(self) -> str | None:
        """The version from the last logon acknowledgement."""
        return self._engine.server_version

    @property
    def ack_batch_size(self) -> int:
        """The number of queue acknowledgements in a batch; 0 or 1 = each is sent at once."""
        return self._engine.config.ack_batch_size

    @ack_batch_size.setter
    def ack_batch_size(self, value: int) -> None:
        self._engine.set_ack_batch_size(check_number("ack_batch_size", value))

    @property
    def ack_timeout(self) -> float | None:
        """Seconds after which a partial batch is sent; None = 1 s for batches, 0 = never."""
        return self._engine.config.ack_timeout_s

    @ack_timeout.setter
    def ack_timeout(self, value: float | None) -> None:
        self._engine.config = replace(
            self._engine.config, ack_timeout_s=check_seconds("ack_timeout", value)
        )

    @property
    def unpersisted_count(self) -> int:
        """The number of publishes and deletes in the publish store that the server has not acknowledged."""
        return self._settings.unpersisted_count()

    @property
    def stats(self) -> ClientStats:
        """A snapshot of the counters."""
        return replace(
            self._engine.stats,
            messages_out=self._engine.outbox.frames,
            bytes_in=self._link.bytes_in,
            bytes_out=self._link.bytes_out,
            handler_errors=self._handlers.errors,
            unpersisted=self.unpersisted_count,
        )

    # Connection

    async def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Open the connection. Nothing is sent, except an HTTP upgrade request if the URI requires it.

        `timeout`, in seconds, covers the lookup of the host name, the connection and its TLS handshake. Raises
        AlreadyConnectedException, ConnectionRefusedException, and for a connection string that cannot work
        InvalidUriException, InvalidTransportOptionsException or TransportTypeException.
        """
        await self._connector.connect(uri, self._settings.deadline(timeout))

    async def logon(
        self,
        *,
        authenticator: Authenticator | None = None,
        options: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Message:
        """Log on and return the acknowledgement. A logon that is refused, cancelled, or not answered within `timeout`
        seconds closes the connection.

        Raises AuthenticationException, NameInUseException, DuplicateLogonException, PublishStoreGapException.
        """
        return await self._connector.log_on(authenticator, options, timeout)

    async def open(self, *, timeout: Timeout = DEFAULT) -> Self:
        """Connect and log on, both within `timeout` seconds. Raises as `connect` and `logon` do."""
        deadline = self._settings.deadline(timeout)
        await self.connect(timeout=timeout)
        await self.logon(timeout=seconds_left(deadline))
        return self

    async def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Send unsent queue acknowledgements and close the connection; the client may connect again.

        If the server is slow, the call waits at most `timeout` seconds for it to read the bytes sent before, then drops
        them; a publish store keeps its messages.
        """
        if self._link.loop is not None:
            self._link.check_loop()
            await self._link.leave(self._settings.deadline(timeout))

    async def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect as `disconnect` does, and end all handler tasks; the client cannot be used again. Safe to call
        again.

        Running coroutine handlers may finish within `timeout` seconds; then they are cancelled.
        """
        if self._link.closing:
            return
        deadline = self._settings.deadline(timeout)
        if self._link.loop is not None and self._link.loop.is_running():
            self._link.check_loop()
        self._settings.warn_of_unpersisted()
        try:
            await self._link.close(deadline)
        finally:
            self._handlers.run_event(State(ConnectionState.SHUTDOWN))

    async def set_heartbeat(self, interval: float | None, timeout: float | None = None) -> None:
        """Exchange heartbeats every `interval` seconds from now on (and after each logon); None = stop."""
        engine = self._engine
        engine.config = replace(
            engine.config,
            heartbeat_s=positive("heartbeat", interval),
            heartbeat_timeout_s=positive("heartbeat timeout", timeout),
        )
        if engine.logged_on:
            self._link.check_usable()
            engine.start_heartbeat(time.monotonic())
            self._link.after_call()

    # Commands

    def execute(
        self, command: Command, *, control: bool = False, timeout: Timeout = DEFAULT
    ) -> StreamRequest:
        """Send a command and return its results as a stream. With `control` it includes group markers and acks."""
        settings = CallSettings.of_command(control, timeout)
        return StreamRequest(lambda: self._commands.stream(self, command, settings))

    async def execute_async(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Send a command whose results go to `handler`; return its id once the server has accepted it."""
        return await self._commands.handle(self, command, handler, timeout, resubscribe=True)

    async def execute_async_no_resubscribe(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Like execute_async, for subscriptions that end with the connection."""
        return await self._commands.handle(self, command, handler, timeout, resubscribe=False)

    def send(self, command: Command) -> str:
        """Send a command without waiting for an answer; return its command id. Answers go to the last chance handler.

        Raises BufferError if the server does not read the bytes sent before; then nothing was sent.
        """
        return self._commands.send(command)

    async def flush(self, ack_type: AckType = AckType.COMPLETED, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the server has acknowledged, with `ack_type`, that it processed everything sent before.

        Raises TimedOutException after `timeout` seconds, DisconnectedException if the connection is lost meanwhile.
        """
        await self._commands.start(Command("flush"), None, timeout, awaited=ack_type)

    async def unsubscribe(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """End subscriptions; without arguments, all of them. Late messages go to the last chance handler."""
        await self._commands.start(Command("unsubscribe", sub_id=",".join(sub_ids) or "all"), None, timeout)

    async def pause(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Pause bookmark subscriptions; messages already sent still arrive."""
        self._link.check_usable()
        await self._commands.start(pause_command(self._engine, "pause", sub_ids), None, timeout)

    async def resume(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Resume paused subscriptions; those resumed by one call share one replay."""
        self._link.check_usable()
        await self._commands.start(pause_command(self._engine, "resume", sub_ids), None, timeout)

    # Publishing

    async def publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[PublishArgs],
    ) -> int:
        """Publish a message; return its sequence number, 0 without a publish store. Waits for no answer.

        `fields`: see `PublishArgs`. Raises StoreException if a publish store in files cannot keep the message, or
        StoreFullException if the store is full and has on_full="raise".

        If the server does not read the bytes sent before, or the publish store is full, the call waits, at most
        `timeout` seconds. Then it raises TimedOutException, and the message was neither sent nor stored. A call that is
        cancelled while it waits has not published either.
        """
        link = self._link
        if link.loop is not _get_running_loop():
            link.check_usable()
        if link.turn_due:  # before the message is accepted: a cancelled call has not published
            await link.take_turn()
        if not fields or is_plain(fields):
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            if sequence < -1:
                link.send_burst()
                return -2 - sequence
            template = self._publisher.templates.of(topic)
        else:
            template = publish_template("publish", topic, fields, stored=self._outbox.numbered)
        return await self._publisher.publish(template, data, timeout)

    async def delta_publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[PublishArgs],
    ) -> int:
        """Publish changes to a record; otherwise like `publish`."""
        template = publish_template("delta_publish", topic, fields, stored=self._outbox.numbered)
        if self._link.turn_due:
            await self._link.take_turn()
        return await self._publisher.publish(template, data, timeout)

    def publish_nowait(
        self,
        topic: str,
        data: Data | object = b"",
        **fields: Unpack[PublishArgs],
    ) -> int:
        """Publish a message without ever waiting; return its sequence number, 0 without a publish store.

        Raises StoreFullException if the publish store is full, and BufferError if the server does not read the bytes
        sent before. Then the message was neither sent nor stored. A publish store on disk may not have synced it yet.
        """
        if self._link.loop is not _get_running_loop():
            self._link.check_usable()
        if not fields or is_plain(fields):
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            if sequence < -1:
                self._link.send_burst()
                return -2 - sequence
            template = self._publisher.templates.of(topic)
        else:
            template = publish_template("publish", topic, fields, stored=self._outbox.numbered)
        return self._publisher.publish_nowait(template, data)

    async def publish_persisted(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[PublishArgs],
    ) -> int:
        """Publish a message and wait until the server has persisted it; return its sequence number, 0 without a
        publish store.

        Raises the failure if the server refuses the message, and TimedOutException after `timeout` seconds. If the
        connection is lost before the answer, RetryOperationException or DisconnectedException: the message may be
        persisted or not. After these, a publish store still keeps the message and sends it again. `publish` and
        `publish_flush` are faster for many messages.
        """
        body = self._commands.encode(data)
        command = persisted_publish(topic, body, fields, stored=self.publish_store is not None)
        ticket, _ = await self._commands.start(command, None, timeout, awaited=AckType.PERSISTED)
        return ticket.sequence

    async def publish_flush(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything published before is acknowledged as persisted; without a store, flush().

        The limit of `timeout` seconds includes the wait for the server to read the bytes sent before. Raises
        TimedOutException after it; the messages stay in the store. Messages that the server refuses are reported to the
        failed write handler, not here.
        """
        if self.publish_store is None:
            await self.flush(timeout=timeout)
        else:
            await self._publisher.flush(timeout)

    # Acknowledging and discarding: never wait

    def ack(self, target: Message | str, bookmarks: str | Iterable[str] = (), options: str = "") -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic. Batched; never waits for the server."""
        self._commands.ack(target, bookmarks, options)

    def transaction(self, *messages: Message, timeout: Timeout = DEFAULT) -> Transaction:
        """A transaction that acknowledges queue messages and publishes, all or nothing; see `Message.transaction`.

        timeout: seconds that leaving its block waits at most.
        """

        async def send(command: TransactionCommand, timeout: Timeout) -> None:
            await self._commands.start(command, None, timeout)

        return Transaction(messages, self._commands.encode, send, timeout, waits=False)

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches."""
        self._commands.flush_acks()

    def discard(self, target: Message | str, store_seq: int = 0) -> None:
        """Mark a message, or a sub id and store_seq, as processed in the bookmark store."""
        self._link.check_usable()
        discard(self._settings.bookmark_store, target, store_seq)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark from which the bookmark store would resume this subscription; None = nothing known."""
        self._link.check_usable()
        return self.bookmark_store.get_most_recent(sub_id) if self.bookmark_store is not None else None

    # Subscribing. Without a handler these return a StreamRequest, with one a coroutine for the id.

    def _enter(
        self, command: Command, settings: CallSettings, handler: Handler | None
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        if handler is None:
            return StreamRequest(lambda: self._commands.stream(self, command, settings))
        return self._commands.handle(
            self, command, handler, settings.timeout, resubscribe=settings.resubscribe
        )

    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[SubscribeArgs]
    ) -> StreamRequest: ...
    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> Coroutine[Any, Any, str]: ...
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Subscribe to a topic or topic expression; return a stream, or with a handler the subscription id.

        Returns when the server has accepted the subscription. `kw`: see `SubscribeArgs`. Raises BadFilterException,
        BadRegexTopicException, InvalidOptionsException, NotEntitledException, SubscriptionAlreadyExistsException.
        """
        return self._enter(*subscription("subscribe", topic, filter, kw), handler)

    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> StreamRequest: ...
    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> Coroutine[Any, Any, str]: ...
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Replay a recorded topic from a bookmark, then continue live. Pass a stable sub_id with MOST_RECENT.

        `bookmark`: also a datetime, an ISO time, `now`, or `-5m` for five minutes ago; see `amps.client.Bookmark`.
        `kw`: see `SubscribeArgs`. Raises as `subscribe` does, and InvalidBookmarkException, or InvalidTopicException
        for a topic that is not recorded.
        """
        store = self._settings.bookmark_store
        return self._enter(*bookmark_subscription(topic, bookmark, filter, kw, store, self._handlers), handler)

    @overload
    def delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[SubscribeArgs]
    ) -> StreamRequest: ...
    @overload
    def delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> Coroutine[Any, Any, str]: ...
    def delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Subscribe to the changed fields of records."""
        return self._enter(*subscription("delta_subscribe", topic, filter, kw, forbidden=("bookmark",)), handler)

    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> StreamRequest: ...
    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> Coroutine[Any, Any, str]: ...
    def sow(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Query the current records; return a stream that ends after them, or with a handler the query id."""
        return self._enter(*subscription("sow", topic, filter, kw, query=True), handler)

    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> StreamRequest: ...
    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> Coroutine[Any, Any, str]: ...
    def sow_and_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Query the current records and continue with every change, without a gap."""
        return self._enter(*subscription("sow_and_subscribe", topic, filter, kw, query=True), handler)

    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> StreamRequest: ...
    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> Coroutine[Any, Any, str]: ...
    def sow_and_delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        """Query the current records and continue with the changed fields."""
        return self._enter(*subscription("sow_and_delta_subscribe", topic, filter, kw, query=True), handler)

    async def sow_count(self, topic: str, filter: str | None = None, *, timeout: Timeout = DEFAULT) -> int:
        """Return the number of records that match, without fetching them."""
        command = Command("sow", topic, filter=filter, options="top_n=0")
        route = Route(RouteKind.QUERY, owner=self)
        _, ack = await self._commands.start(command, route, timeout, awaited=AckType.STATS)
        return (ack.matches if ack is not None else None) or 0

    async def sow_delete(
        self,
        topic: str,
        *,
        filter: str | None = None,
        keys: Iterable[str] | None = None,
        data: Data | object | None = None,
        options: str = "",
        stats: bool = True,
        timeout: Timeout = DEFAULT,
    ) -> Message:
        """Delete records by exactly one of filter, keys and data; return the `stats` (or `processed`) ack."""
        body = None if data is None else self._commands.encode(data)
        command = delete_command(topic, filter, keys, body, options)
        awaited = AckType.STATS if stats else AckType.PROCESSED
        _, ack = await self._commands.start(command, None, timeout, awaited=awaited)
        assert ack is not None
        return ack

    async def consume(
        self,
        queue: str,
        handler: Handler,
        filter: str | None = None,
        *,
        max_backlog: int = 10,
        concurrency: int = 1,
        timeout: Timeout = DEFAULT,
        options: str = "",
        sub_id: str | None = None,
    ) -> str:
        """Handle the messages of a queue; return the subscription id.

        A message is acknowledged when `handler` has returned, and given back to the queue if it raises. Up to
        `concurrency` handlers run at once, in tasks if the handler is a coroutine function.
        """
        command = consumption(queue, handler, filter, max_backlog, concurrency, options, sub_id)
        return await self._commands.handle(
            self, command, handler, timeout, resubscribe=True, auto_ack=True, concurrency=concurrency
        )

    # Handlers: None removes the handler

    def set_exception_listener(self, fn: Callable[[BaseException], object] | None) -> None:
        """Set the listener for exceptions of handlers and other listeners; without one they are logged."""
        check_handler(fn)
        self._handlers.exception_listener = fn

    def set_transport_filter(self, fn: Callable[[bytes, bool], object] | None) -> None:
        """Set `fn(data, outgoing)`, called with all bytes, before encryption and after decryption."""
        check_handler(fn)
        self._handlers.transport_filter = fn

    def set_last_chance_handler(self, fn: Handler | None) -> None:
        """Set the handler for messages that have no route."""
        check_handler(fn)
        self._handlers.last_chance_handler = fn

    def set_duplicate_handler(self, fn: Handler | None) -> None:
        """Set the handler for messages that the bookmark store has already seen."""
        check_handler(fn)
        self._handlers.duplicate_handler = fn

    def set_global_handler(self, command: str, fn: Handler | None) -> None:
        """Set a handler for all messages of one type (`ack`, `publish` …), called before normal routing."""
        check_handler(fn)
        self._handlers.set_global(command, fn)
        self._engine.set_global(command, fn is not None)

    def set_failed_write_handler(self, fn: Callable[[Message, str], object] | None) -> None:
        """Set `fn(message, reason)` for publishes and deletes that the server refused."""
        check_handler(fn)
        self._handlers.failed_write_handler = fn

    def set_disconnect_handler(
        self, fn: "Callable[[AsyncClient, ConnectionException], object] | None"
    ) -> None:
        """Set `fn(client, error)`, called when the connection is lost; it may connect again, and be a coroutine
        function.
        """
        check_handler(fn)
        self._disconnect_handler.handler = fn

    def set_receive_started_callback(self, fn: Callable[[], object] | None) -> None:
        """Set a function that is called first when a new connection begins to receive."""
        check_handler(fn)
        self._handlers.receive_started = fn

    def add_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Add a listener that is called with each connection state; it must not wait for the server."""
        check_handler(fn)
        self._handlers.state_listeners.append(fn)

    def remove_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Remove a connection state listener."""
        self._handlers.remove_state_listener(fn)

    def clear_connection_state_listeners(self) -> None:
        """Remove all connection state listeners."""
        self._handlers.state_listeners.clear()
