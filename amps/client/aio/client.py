"""The asyncio client: the same calls as the blocking `Client`, as coroutines.

A call that waits for the server ends at its `timeout` with TimedOutException, also while the server reads nothing. When
a waiting call is cancelled, its command is abandoned. A publish suspends only if the server does not read what was sent
before, if the publish store is full, and once per 64 KiB, so that the event loop reads acknowledgements.
"""

import asyncio
import inspect
import logging
import ssl
import time
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar, Unpack, overload

from amps.client.aio.connection import seconds_left
from amps.client.aio.handlers import HandlerTasks, is_coroutine_handler
from amps.client.aio.link import Link, release
from amps.client.aio.streams import AsyncMessageStream, MessageQueue, StreamRequest
from amps.client.enums import DEFAULT, MOST_RECENT, AckType, Bookmark, ConnectionState, Data, Timeout
from amps.client.errors import (
    AMPSException,
    ConnectionException,
    DisconnectedException,
    DuplicateLogonException,
    StoreFullException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.calls import (
    SUBSCRIBING,
    delete_command,
    is_most_recent,
    needs_route,
    pause_command,
    publish_template,
    queue_ack,
    replaced_route,
    subscription,
)
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings, body_of, positive
from amps.client.payloads.codecs import Codec
from amps.client.protocol.command import Command, PublishTemplate, check_number, check_text, check_timeout
from amps.client.protocol.engine_types import (
    ClientStats,
    Phase,
    Route,
    RouteKind,
    State,
    Ticket,
)
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import (
    BookmarkSubscribeArgs,
    CallSettings,
    OnFull,
    QueryArgs,
    SubscribeArgs,
    check_buffer,
)
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore, sync_waits
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.servers.auth import Authenticator, DefaultAuthenticator

T = TypeVar("T")

SEND_AT_BYTES = 64 * 1024
MAX_TEMPLATES = 10_000
FLUSH_CHECK_S = 0.005


class AsyncClient(EventHandlers):
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
            timeout=timeout, heartbeat=heartbeat, heartbeat_timeout=heartbeat_timeout,
            ack_batch_size=ack_batch_size, ack_timeout=ack_timeout, batch_size=batch_size,
            max_depth=max_depth, on_full=on_full, retry_on_disconnect=retry_on_disconnect,
            logon_options=logon_options, logon_correlation=logon_correlation, tls=tls,
            http_headers=http_headers, max_message_size=max_message_size, logger=logger,
        )  # fmt: skip
        super().__init__(settings.name, settings.logger)
        self.name = settings.name
        """The client name."""
        self.uri = uri
        """The connection string of the last `connect`, or of the constructor."""
        self.timeout = timeout
        """Seconds that calls wait at most, unless they have a `timeout` of their own; None = no limit."""
        self.auto_ack = auto_ack
        """Whether queue messages of later subscriptions are acknowledged automatically."""
        self.publish_store = publish_store
        """The publish store; None without one."""
        self.bookmark_store = bookmark_store
        """The bookmark store; None without one."""
        self._settings = settings
        self._link = Link(settings, self, self._lost)
        self._engine = self._link.engine
        self._outbox = self._engine.outbox
        self._templates: dict[str, PublishTemplate] = {}
        self._resume_streams = True
        self._disconnect_handler: Callable[[AsyncClient, ConnectionException], object] | None = None
        if publish_store is not None:
            publish_store.set_discard_listener(self._note_discard)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.name!r} {self.state.name}>"

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # State

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
        return self._state

    @property
    def server_version(self) -> str | None:
        """The version from the last logon acknowledgement."""
        return self._engine.server_version

    @property
    def codec(self) -> Codec:
        """The codec for bodies: the one given to the client, else the one of the message type."""
        return self._settings.codec_of(self._link.uri)

    @property
    def ack_batch_size(self) -> int:
        """The number of queue acknowledgements in a batch; 0 or 1 = each is sent at once."""
        return self._engine.config.ack_batch_size

    @ack_batch_size.setter
    def ack_batch_size(self, value: int) -> None:
        self._engine.set_ack_batch_size(value)

    @property
    def ack_timeout(self) -> float | None:
        """Seconds after which a partial batch is sent; None = 1 s for batches, 0 = never."""
        return self._engine.config.ack_timeout_s

    @ack_timeout.setter
    def ack_timeout(self, value: float | None) -> None:
        self._engine.config = replace(self._engine.config, ack_timeout_s=value)

    @property
    def unpersisted_count(self) -> int:
        """The number of publishes and deletes in the publish store that the server has not acknowledged."""
        return self.publish_store.unpersisted_count() if self.publish_store is not None else 0

    @property
    def stats(self) -> ClientStats:
        """A snapshot of the counters."""
        return replace(
            self._engine.stats,
            messages_out=self._outbox.frames,
            bytes_in=self._link.bytes_in,
            bytes_out=self._link.bytes_out,
            handler_errors=self._handler_errors,
            unpersisted=self.unpersisted_count,
        )

    def check_loop(self) -> None:
        """Raise UsageException unless the caller runs on the event loop on which the client was opened."""
        self._link.check_loop()

    def _deadline(self, timeout: Timeout) -> float | None:
        seconds = check_timeout(self.timeout if timeout is DEFAULT else timeout)
        return None if seconds is None else time.monotonic() + seconds

    # Connection

    async def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Open the connection. Nothing is sent, except an HTTP upgrade request if the URI requires it.

        `timeout`, in seconds, covers the lookup of the host name, the connection and its TLS handshake. Raises
        AlreadyConnectedException, ConnectionRefusedException, and for a connection string that cannot work
        InvalidUriException, InvalidTransportOptionsException or TransportTypeException.
        """
        text = uri or self.uri
        if text is None:
            raise self._settings.missing_uri()
        await self._link.connect(text, self._deadline(timeout))
        self.uri = text
        if self._receive_started is not None:
            self._call(self._receive_started)

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
        self._link.check_usable()
        check_text("options", options or "")
        uri = self._link.uri
        if uri is None or not self.connected:
            cause = self._engine.lost_by
            if cause is None:
                raise DisconnectedException("connect before logon")
            raise DisconnectedException(str(cause), reason=cause.reason, message=cause.message)
        authority = authenticator or self._settings.authenticator or DefaultAuthenticator()
        asked = type(authority) is not DefaultAuthenticator  # a subclass may supply another password
        username, secret = uri.user, uri.password
        deadline = self._deadline(timeout)
        ticket: Ticket | None = None
        try:
            password = await _result(authority.authenticate(username or "", secret or ""), deadline)
            while True:
                ticket = self._engine.logon(
                    time.monotonic(),
                    username,
                    password if asked or secret is not None else None,
                    self._settings.logon_options if options is None else options,
                    ticket,
                )
                ack = await self._link.answer(ticket, deadline)
                if ack is not None:
                    break
                username, challenge = ticket.challenge or ("", "")
                password, asked = await _result(authority.retry(username, challenge), deadline), True
            completed: Callable[..., Any] = authority.completed
            await _result(completed(username or "", password, ack.reason or ""), deadline)
        except (DuplicateLogonException, UsageException):
            raise
        except BaseException:
            self._link.abort()
            raise
        return ack

    async def open(self, *, timeout: Timeout = DEFAULT) -> Self:
        """Connect and log on, both within `timeout` seconds. Raises as `connect` and `logon` do."""
        deadline = self._deadline(timeout)
        await self.connect(timeout=timeout)
        await self.logon(timeout=seconds_left(deadline))
        return self

    async def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Send unsent queue acknowledgements and close the connection; the client may connect again.

        If the server is slow, the call waits at most `timeout` seconds for it to read the bytes sent before, then drops
        them; a publish store keeps its messages.
        """
        if self._link.loop is not None:
            self.check_loop()
            await self._link.leave(self._deadline(timeout))

    async def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect as `disconnect` does, and end all handler tasks; the client cannot be used again.

        Safe to call again.
        Running coroutine handlers may finish within `timeout` seconds; then they are cancelled.
        """
        if self._link.closing:
            return
        deadline = self._deadline(timeout)
        if self._link.loop is not None and self._link.loop.is_running():
            self.check_loop()
        if self.unpersisted_count:
            self._logger.warning(
                "client %s: closed with %d messages not known to be persisted; publish_flush waits",
                self.name, self.unpersisted_count,
            )  # fmt: skip
        try:
            await self._link.close(deadline)
        finally:
            self._run_event(State(ConnectionState.SHUTDOWN))

    def set_disconnect_handler(
        self, fn: "Callable[[AsyncClient, ConnectionException], object] | None"
    ) -> None:
        """Set `fn(client, error)`, a plain or coroutine function, called when the connection is lost."""
        self._disconnect_handler = fn

    def _lost(self, failure: AMPSException | None) -> None:
        if self._disconnect_handler is not None and failure is not None and not self._link.closing:
            self._link.spawn(self._tell_disconnect(failure))

    async def _tell_disconnect(self, failure: AMPSException) -> None:
        handler: Callable[[AsyncClient, Any], Any] | None = self._disconnect_handler
        if handler is None:
            return
        try:
            await _result(handler(self, failure), None)
        except Exception as error:
            self._handler_failed(handler, error)

    def note_room(self) -> None:
        """A queue that was full has room again."""
        self._link.note_room()

    def handler_failed(self, handler: Callable[..., object], error: BaseException) -> None:
        """Report an exception of a handler."""
        self._handler_failed(handler, error)

    def acknowledge(self, message: Message, options: str = "") -> None:
        """Acknowledge a message that a handler has processed."""
        self._acknowledge(message, options)

    async def set_heartbeat(self, interval: float | None, timeout: float | None = None) -> None:
        """Exchange heartbeats every `interval` seconds from now on (and after each logon); None = stop."""
        self._engine.config = replace(
            self._engine.config,
            heartbeat_s=positive("heartbeat", interval),
            heartbeat_timeout_s=positive("heartbeat timeout", timeout),
        )
        if self._engine.logged_on:
            self._link.check_usable()
            self._engine.start_heartbeat(time.monotonic())
            self._link.after_call()

    def set_global_handler(self, command: str, fn: Handler | None) -> None:
        """Set a handler for all messages of one type (`ack`, `publish` …), called before normal routing."""
        if fn is None:
            self._global_handlers.pop(command, None)
        else:
            self._global_handlers[command] = fn
        self._engine.set_global(command, fn is not None)

    # Commands

    async def _start(
        self,
        command: Command,
        route: Route | None,
        timeout: Timeout,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> tuple[Ticket, Message | None]:
        self._link.check_usable()
        deadline = self._deadline(command.timeout if timeout is DEFAULT else timeout)
        await self._link.make_room(command.command, deadline)
        while True:
            try:
                ticket = self._engine.execute(
                    command, route, time.monotonic(), resubscribe=resubscribe, awaited=awaited
                )
                break
            except DisconnectedException as refused:
                await self._await_server(refused, deadline)
        return ticket, await self._link.answer(ticket, deadline)

    async def _await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        """Wait for a connection if one may come; otherwise raise the error of the call that was refused."""
        raise refused

    def execute(
        self, command: Command, *, control: bool = False, timeout: Timeout = DEFAULT
    ) -> StreamRequest:
        """Send a command and return its results as a stream. With `control` it includes group markers and acks."""
        settings = CallSettings("", {}, timeout, control, True, None, None, False, False)
        return self._request(command, settings)

    async def execute_async(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Send a command whose results go to `handler`; return its id once the server has accepted it."""
        return await self._begin_handling(command, handler, timeout, resubscribe=True)

    async def execute_async_no_resubscribe(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Like execute_async, for subscriptions that end with the connection."""
        return await self._begin_handling(command, handler, timeout, resubscribe=False)

    def send(self, command: Command) -> str:
        """Send a command without waiting for an answer; return its id. Answers go to the last chance handler.

        Raises BufferError if the server does not read the bytes sent before; then nothing was sent.
        """
        self._link.check_usable()
        if self._outbox.blocked:
            raise BufferError("send: the server does not read what was sent before")
        command_id = self._engine.send(command, time.monotonic())
        self._link.after_call()
        return command_id

    async def _begin_handling(
        self,
        command: Command,
        handler: Handler | None,
        timeout: Timeout,
        *,
        resubscribe: bool,
        auto_ack: bool | None = None,
        concurrency: int = 1,
    ) -> str:
        if handler is not None and not callable(handler):
            raise TypeError(f"a handler must be callable, not {type(handler).__name__}")
        route = replaced_route(self._engine, command)
        if route is not None:
            if handler is not None:
                self._set_handler(route, handler, concurrency)
        elif needs_route(self._engine, command):
            route = Route(
                RouteKind.COMMAND, owner=self, auto_ack=self.auto_ack if auto_ack is None else auto_ack
            )
            self._set_handler(route, handler, concurrency)
        ticket, _ = await self._start(command, route, timeout, resubscribe=resubscribe)
        if route is None:
            return ticket.command_id
        return ticket.sub_id or ticket.query_id or ticket.command_id

    def _set_handler(self, route: Route, handler: Handler | None, concurrency: int) -> None:
        if handler is None or (concurrency == 1 and not is_coroutine_handler(handler)):
            route.handler = handler
            return
        if isinstance(route.sink, HandlerTasks):
            route.sink.handler = handler
            return
        queue = MessageQueue(self, route, self._settings.max_depth, "pause")
        route.sink = HandlerTasks(self, route, queue, handler, concurrency)
        self._link.keep_handlers(route.sink)

    def _request(self, command: Command, settings: CallSettings) -> StreamRequest:
        return StreamRequest(lambda: self._begin_stream(command, settings))

    async def _begin_stream(self, command: Command, settings: CallSettings) -> AsyncMessageStream:
        self._link.check_usable()
        route = replaced_route(self._engine, command)
        if route is not None and isinstance(route.sink, MessageQueue) and route.sink.stream is not None:
            stream = route.sink.stream()
            if stream is not None:
                await self._start(command, route, settings.timeout, resubscribe=self._resumes(settings))
                return stream
        new = route is None
        if route is None:
            route = Route(RouteKind.COMMAND, owner=self, auto_ack=self.auto_ack)
        depth = self._settings.max_depth if settings.max_depth is None else settings.max_depth
        on_full = settings.on_full or self._settings.on_full
        check_buffer(depth, on_full)
        queue = MessageQueue(self, route, depth, on_full)
        queue.control = settings.control or command.command not in SUBSCRIBING
        stream = AsyncMessageStream(self, command, route, queue)
        if settings.conflate:
            stream.conflate()
        if new and needs_route(self._engine, command):
            route.sink = queue
            try:
                await self._start(command, route, settings.timeout, resubscribe=self._resumes(settings))
            except BaseException:
                stream.closed = True
                raise
        else:  # the stream receives nothing
            stream.closed = True
            queue.end()
            await self._start(
                command, None if new else route, settings.timeout, resubscribe=settings.resubscribe
            )
        return stream

    def _resumes(self, settings: CallSettings) -> bool:
        return settings.resubscribe and self._resume_streams

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream that is closed."""
        if not route.closed:
            self._engine.cancel(route)
            self._link.after_call()

    def end_stream_later(self, route: Route) -> None:
        """End a stream that was dropped without close()."""
        self._link.end_later(route)

    async def flush(self, ack_type: AckType = AckType.COMPLETED, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the server has acknowledged, with `ack_type`, that it processed everything sent before.

        Raises TimedOutException after `timeout` seconds, DisconnectedException if the connection is lost meanwhile.
        """
        await self._start(Command("flush"), None, timeout, awaited=ack_type)

    async def unsubscribe(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """End subscriptions; without arguments, all of them. Late messages go to the last chance handler."""
        await self._start(Command("unsubscribe", sub_id=",".join(sub_ids) or "all"), None, timeout)

    async def pause(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Pause bookmark subscriptions; messages already sent still arrive."""
        self._link.check_usable()
        await self._start(pause_command(self._engine, "pause", sub_ids), None, timeout)

    async def resume(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Resume paused subscriptions; those resumed by one call share one replay."""
        self._link.check_usable()
        await self._start(pause_command(self._engine, "resume", sub_ids), None, timeout)

    # Publishing

    async def publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Publish a message; return its sequence number, 0 without a publish store. Waits for no answer.

        `expiration` is in seconds. Raises StoreException if a publish store in files cannot keep the message, or
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
        if expiration is None and correlation_id is None and sow_key is None:
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            if sequence < -1:
                link.send_burst()
                return -2 - sequence
        return await self._publish(
            self._template("publish", topic, expiration, correlation_id, sow_key), data, timeout
        )

    async def delta_publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> int:
        """Publish changes to a record; otherwise like publish."""
        template = publish_template("delta_publish", topic, expiration, correlation_id, sow_key)
        if self._link.turn_due:
            await self._link.take_turn()
        return await self._publish(template, data, timeout)

    def publish_nowait(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
    ) -> int:
        """Publish a message without ever waiting; return its sequence number, 0 without a publish store.

        Raises StoreFullException if the publish store is full, and BufferError if the server does not read the bytes
        sent before. Then the message was neither sent nor stored. A publish store on disk may not have synced it yet.
        """
        if self._link.loop is not _get_running_loop():
            self._link.check_usable()
        if expiration is None and correlation_id is None and sow_key is None:
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            if sequence < -1:
                self._link.send_burst()
                return -2 - sequence
        template = self._template("publish", topic, expiration, correlation_id, sow_key)
        self._link.check_usable()
        if self._outbox.blocked:
            raise BufferError("publish_nowait: the server does not read what was sent before")
        return self._publish_now(template, self._encode(data))

    def _template(
        self,
        command: str,
        topic: str,
        expiration: int | None,
        correlation_id: str | None,
        sow_key: str | None,
    ) -> PublishTemplate:
        if expiration is not None or correlation_id is not None or sow_key is not None:
            return publish_template(command, topic, expiration, correlation_id, sow_key)
        template = self._templates.get(topic)
        if template is None:
            template = self._templates[topic] = PublishTemplate(command, topic)
            self._outbox.learn(topic, template.header)
            if len(self._templates) > MAX_TEMPLATES:
                self._templates.clear()
        return template

    def _encode(self, data: Data | object) -> bytes:
        body = body_of(data)
        if body is None:
            if self._settings.codec is None and self._link.uri is None:
                self._engine.check_connected(f"cannot encode {type(data).__name__}")
            body = self.codec.encode(data)
        return body

    async def _publish(self, template: PublishTemplate, data: Data | object, timeout: Timeout) -> int:
        if timeout is not DEFAULT:
            check_timeout(timeout)
        self._link.check_usable()
        body = data if type(data) is bytes else self._encode(data)
        deadline = self._deadline(timeout)
        await self._link.make_room(template.command, deadline)
        store = self.publish_store
        while True:
            try:
                sequence = self._publish_now(template, body)
                break
            except StoreFullException as full:
                if store is None or store.on_full != "wait":
                    raise
                if not self.connected and not self._engine.recovers:
                    raise
                self._link.flush()
                if not await self._link.wait_in(self._link.discarded, deadline):
                    raise TimedOutException(
                        f"{template.command}: the publish store had no room in time, "
                        f"{self.unpersisted_count} messages in it are not persisted"
                    ) from full
                self._link.check_usable()
            except DisconnectedException as refused:
                await self._await_server(refused, deadline)
        if store is not None and self._outbox.log is None and sync_waits(store):
            assert self._link.loop is not None
            await self._link.loop.run_in_executor(None, store.sync, sequence)
        return sequence

    def _publish_now(self, template: PublishTemplate, body: bytes) -> int:
        sequence = self._engine.publish_body(template, body)
        self._outbox.note_publish()
        self._link.send_burst()
        return sequence

    async def publish_flush(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything published before is acknowledged as persisted; without a store, flush().

        The limit of `timeout` seconds includes the wait for the server to read the bytes sent before. Raises
        TimedOutException after it; the messages stay in the store. Messages that the server refuses are reported to the
        failed write handler, not here.
        """
        store = self.publish_store
        if store is None:
            await self.flush(timeout=timeout)
            return
        self._link.check_usable()
        target = store.highest_unpersisted()
        if target == 0:
            return
        deadline = self._deadline(timeout)
        if not (self.connected or self._engine.recovers):
            raise self._cut_off(f"publish_flush: not connected, {self.unpersisted_count} unpersisted")
        await self._link.make_room("publish_flush", deadline)
        if self._engine.phase is Phase.READY:  # the server then sends its conflated acknowledgements at once
            self._engine.execute(Command("flush"), None, time.monotonic(), awaited=AckType.PERSISTED)
            self._link.after_call()
        while 0 < store.lowest_unpersisted() <= target:
            if not await self._link.wait_in(self._link.discarded, deadline):
                raise TimedOutException(
                    f"publish_flush: {self.unpersisted_count} messages not persisted in time"
                )
            if 0 < store.lowest_unpersisted() <= target and not (self.connected or self._engine.recovers):
                raise self._cut_off(f"publish_flush: connection lost, {self.unpersisted_count} unpersisted")

    def _cut_off(self, what: str) -> DisconnectedException:
        cause = self._engine.lost_by
        if cause is None:
            return DisconnectedException(what)
        return DisconnectedException(f"{what}: {cause}", reason=cause.reason, message=cause.message)

    def _note_discard(self, sequence: int) -> None:
        release(self._link.discarded)

    # Acknowledging and discarding: never wait

    def ack(self, target: Message | str, bookmarks: str | Iterable[str] = (), options: str = "") -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic. Batched; never waits for the server."""
        self._link.check_usable()
        due = queue_ack(target, bookmarks, options)
        if due is not None:
            topic, bookmark, sub_id = due
            self._engine.ack(topic, bookmark, options, sub_id, time.monotonic())
            self._link.after_call()

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches."""
        self._link.check_usable()
        self._engine.flush_acks()
        self._link.after_call()

    def discard(self, target: Message | str, store_seq: int = 0) -> None:
        """Mark a message, or a sub id and store_seq, as processed in the bookmark store."""
        self._link.check_usable()
        if self.bookmark_store is None:
            return
        if isinstance(target, Message):
            if target.store_seq and target.sub_id is not None:
                self.bookmark_store.discard(target.sub_id, target.store_seq)
        else:
            self.bookmark_store.discard(target, store_seq)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark from which the bookmark store would resume this subscription; None = nothing known."""
        return self.bookmark_store.get_most_recent(sub_id) if self.bookmark_store is not None else None

    # Subscribing. Without a handler these return a StreamRequest, with one a coroutine for the id.

    def _subscribe(
        self,
        name: str,
        topic: str,
        filter: str | None,
        handler: Handler | None,
        keywords: Mapping[str, Any],
        **how: Any,
    ) -> StreamRequest | Coroutine[Any, Any, str]:
        command, settings = subscription(name, topic, filter, keywords, **how)
        if handler is None:
            return self._request(command, settings)
        return self._begin_handling(command, handler, settings.timeout, resubscribe=settings.resubscribe)

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
        """Subscribe to a topic or topic expression. `kw`, exceptions: as `amps.client.Client.subscribe`."""
        return self._subscribe("subscribe", topic, filter, handler, kw)

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

        `bookmark`, `kw`, exceptions: as `amps.client.Client.bookmark_subscribe`.
        """
        if is_most_recent(bookmark) and self.bookmark_store is not None and "sub_id" not in kw:
            self._logger.warning(
                "client %s: MOST_RECENT without sub_id: the next run cannot find where this one stopped",
                self.name,
            )
        return self._subscribe(
            "subscribe", topic, filter, handler, kw,
            call="bookmark_subscribe", forbidden=("bookmark",), bookmark=bookmark,
        )  # fmt: skip

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
        return self._subscribe("delta_subscribe", topic, filter, handler, kw, forbidden=("bookmark",))

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
        """Query the current records; the stream ends after them."""
        return self._subscribe("sow", topic, filter, handler, kw, query=True)

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
        return self._subscribe("sow_and_subscribe", topic, filter, handler, kw, query=True)

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
        return self._subscribe("sow_and_delta_subscribe", topic, filter, handler, kw, query=True)

    async def sow_count(self, topic: str, filter: str | None = None, *, timeout: Timeout = DEFAULT) -> int:
        """Return the number of records that match, without fetching them."""
        command = Command("sow", topic, filter=filter, options="top_n=0")
        route = Route(RouteKind.QUERY, owner=self)
        _, ack = await self._start(command, route, timeout, awaited=AckType.STATS)
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
        body = None if data is None else self._encode(data)
        command = delete_command(topic, filter, keys, body, options)
        awaited = AckType.STATS if stats else AckType.PROCESSED
        _, ack = await self._start(command, None, timeout, awaited=awaited)
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
        check_number("concurrency", concurrency, least=1)
        keywords = {"max_backlog": max_backlog, "options": options, "sub_id": sub_id}
        command, _ = subscription("subscribe", queue, filter, keywords, call="consume")
        return await self._begin_handling(
            command, handler, timeout, resubscribe=True, auto_ack=True, concurrency=concurrency
        )


async def _result(value: T | Awaitable[T], deadline: float | None) -> T:
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
