"""The blocking client: what applications call.

A Client has one connection at a time and any number of threads. Calls either send and return (publish,
ack, unsubscribing a stream) or wait for the server's answer, at most `timeout` seconds. Messages arrive
in handlers, on the receive thread, or in MessageStreams, in the thread that reads them. There is no
protocol rule here: those are in `engine`, the threads and locks are in `runtime`.
"""

import getpass
import logging
import os
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

from amps.client.auth import Authenticator, DefaultAuthenticator
from amps.client.codecs import Codec, codec_for
from amps.client.command import Command, PublishTemplate, check_base64
from amps.client.engine import Engine
from amps.client.engine_types import ClientStats, EngineConfig, Route, RouteKind, Ticket
from amps.client.enums import (
    DEFAULT,
    MOST_RECENT,
    AckType,
    ConnectionState,
    Data,
    Handler,
    Timeout,
)
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    DuplicateLogonException,
    InvalidUriException,
    StoreFullException,
    TimedOutException,
    UsageException,
)
from amps.client.message import Message
from amps.client.options import (
    BookmarkSubscribeArgs,
    OnFull,
    QueryArgs,
    SubscribeArgs,
    option_names,
    split_keywords,
)
from amps.client.runtime import ClientRuntime
from amps.client.stores.bookmark import BookmarkStore
from amps.client.stores.publish import PublishStore
from amps.client.streams import MessageStream, StreamBuffer
from amps.client.timers import process_timer
from amps.client.transport import dial
from amps.client.uri import ConnectionUri, parse_uri
from amps.version import VERSION

CLIENT_VERSION = f"{VERSION}:python"
MAX_TEMPLATES = 10_000

_SUBSCRIBING = frozenset(
    ("subscribe", "delta_subscribe", "sow", "sow_and_subscribe", "sow_and_delta_subscribe")
)


def default_client_name() -> str:
    """A name nobody else has; good for clients that need not continue a stream in their next run."""
    program = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{program}-{user}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


class Client(ClientRuntime):
    """A connection to a server; see the module docstring. Use `with client:` or `open` and `close`."""

    def __init__(
        self,
        name: str | None = None,
        uri: str | None = None,
        *,
        authenticator: Authenticator | None = None,
        publish_store: PublishStore | None = None,
        bookmark_store: BookmarkStore | None = None,
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
        dispatch: Literal["inline", "thread"] = "inline",
        logon_options: str = "",
        logon_correlation: str | None = None,
        tls: ssl.SSLContext | None = None,
        http_headers: Iterable[str] | Mapping[str, str] = (),
        max_message_size: int = 200 * 2**20,
        logger: logging.Logger | None = None,
    ) -> None:
        if logon_correlation is not None:
            check_base64("logon_correlation", logon_correlation)
        if dispatch not in ("inline", "thread"):
            raise ValueError(f"dispatch must be 'inline' or 'thread': {dispatch!r}")
        self.name = name or default_client_name()
        self.uri = uri
        self.timeout = timeout
        self.auto_ack = auto_ack
        self.publish_store = publish_store
        self.bookmark_store = bookmark_store
        if publish_store is not None:
            publish_store.open(self.name)
        config = EngineConfig(
            client_name=self.name,
            version=CLIENT_VERSION,
            heartbeat_s=_positive("heartbeat", heartbeat),
            heartbeat_timeout_s=_positive("heartbeat_timeout", heartbeat_timeout),
            ack_batch_size=ack_batch_size,
            ack_timeout_s=ack_timeout,
            batch_size=batch_size,
            max_message_bytes=max_message_size,
            correlation_id=logon_correlation,
        )
        engine = Engine(config, publish_store, bookmark_store)
        super().__init__(engine, self.name, dispatch, max_depth, logger or logging.getLogger("amps.client"))
        self._authenticator = authenticator
        self._codec_choice = codec
        self._stream_settings: tuple[int, OnFull] = (max_depth, on_full)
        self._logon_options = logon_options
        self._tls = tls
        self._http_headers = dict(http_headers) if isinstance(http_headers, Mapping) else list(http_headers)
        self._parsed_uri: ConnectionUri | None = None
        self._templates: dict[str, PublishTemplate] = {}
        self._discarded = threading.Condition()
        self._discards = 0
        self._disconnect_handler: Callable[[Client, ConnectionException], object] | None = None
        if publish_store is not None:
            publish_store.set_discard_listener(self._notice_discard)

    def __repr__(self) -> str:
        return f"<Client {self.name!r} {self.state.name}>"

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        self.close()

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
    def ack_batch_size(self) -> int:
        """How many queue acknowledgements make a batch; 0 or 1 = each is sent at once."""
        return self._engine.config.ack_batch_size

    @ack_batch_size.setter
    def ack_batch_size(self, value: int) -> None:
        self._engine.config = replace(self._engine.config, ack_batch_size=value)

    @property
    def ack_timeout(self) -> float | None:
        """After how long a partial batch is sent; None = 1 s for batches, 0 = never."""
        return self._engine.config.ack_timeout_s

    @ack_timeout.setter
    def ack_timeout(self, value: float | None) -> None:
        self._engine.config = replace(self._engine.config, ack_timeout_s=value)

    @property
    def unpersisted_count(self) -> int:
        """How many publishes and deletes the publish store holds that the server has not acknowledged."""
        return self.publish_store.unpersisted_count() if self.publish_store is not None else 0

    @property
    def stats(self) -> ClientStats:
        """A snapshot of the counters."""
        return replace(
            self._engine.stats,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            handler_errors=self._handler_errors,
            unpersisted=self.unpersisted_count,
        )

    @property
    def codec(self) -> Codec:
        """How objects are turned into bodies: the codec asked for, else that of the message type."""
        choice = self._codec_choice
        if choice is None:
            choice = self._parsed_uri.message_type if self._parsed_uri is not None else None
        return codec_for(choice) if choice is None or isinstance(choice, str) else choice

    # Connection

    def connect(self, uri: str | None = None) -> None:
        """Open the connection; nothing is sent (but for an HTTP upgrade, if the URI asks for it)."""
        self._check_usable()
        with self._connect_lock:
            if self.connected:
                raise AlreadyConnectedException(f"client {self.name!r} is connected; disconnect first")
            text = uri or self.uri
            if text is None:
                raise InvalidUriException("no connection string: pass uri= to the client or to connect")
            parsed = parse_uri(text)
            transport = dial(parsed, timeout_s=self.timeout, tls=self._tls, http_headers=self._http_headers)
            self.uri = text
            self._parsed_uri = parsed
            self._attach(transport, lambda now: self._engine.connection_made(now, parsed))

    def logon(
        self,
        *,
        authenticator: Authenticator | None = None,
        options: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Message:
        """Log on and wait for the result: the acknowledgement. A refused logon closes the connection."""
        self._check_may_wait("logon")
        if self._parsed_uri is None or not self.connected:
            raise DisconnectedException("connect before logon")
        authority = authenticator or self._authenticator or DefaultAuthenticator()
        asked = not isinstance(authority, DefaultAuthenticator)
        username, secret = self._parsed_uri.user, self._parsed_uri.password
        password = authority.authenticate(username or "", secret or "")
        deadline = _deadline(self.timeout if timeout is DEFAULT else timeout)
        ticket: Ticket | None = None
        try:
            while True:
                with self._lock:
                    ticket = self._engine.logon(
                        time.monotonic(),
                        username,
                        password if asked or secret is not None else None,
                        self._logon_options if options is None else options,
                        ticket,
                    )
                    ticket.waiter = threading.Event()
                self._pump()
                ack = self._await(ticket, _left(deadline))
                if ack is not None:
                    break
                username, challenge = ticket.challenge or ("", "")
                password, asked = authority.retry(username, challenge), True
            authority.completed(username or "", password, ack.reason or "")
        except (DuplicateLogonException, UsageException):
            raise
        except BaseException:
            self._leave()
            raise
        return ack

    def open(self) -> Self:
        """Connect and log on."""
        self.connect()
        self.logon()
        return self

    def disconnect(self) -> None:
        """Send unsent queue acknowledgements and close the connection; the client may connect again."""
        self._leave()

    def close(self) -> None:
        """Disconnect for good. Safe to call again."""
        if self._closed:
            return
        unpersisted = self.unpersisted_count
        if unpersisted:
            self._logger.warning(
                "client %s: closed with %d messages not known to be persisted; publish_flush waits",
                self.name, unpersisted,
            )  # fmt: skip
        self._leave()
        self._closed = True
        self._state = ConnectionState.SHUTDOWN
        for listener in list(self._state_listeners):
            self._call(listener, ConnectionState.SHUTDOWN)
        process_timer().forget(self)
        self._tx_queue.put("stop")
        if self._dispatcher is not None:
            self._dispatcher.stop()

    def _on_disconnect(self, error: AMPSException) -> None:
        handler = self._disconnect_handler
        self._notice_discard(0)
        if handler is not None:
            self._call(handler, self, error)

    # Commands

    def execute(
        self, command: Command, *, control: bool = False, timeout: Timeout = DEFAULT
    ) -> MessageStream:
        """Send a command; its results as a stream. `control` lets group markers and acks through."""
        return self._stream(command, timeout, control=control)

    def execute_async(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Send a command whose results go to `handler`; returns its id once the server has accepted it."""
        return self._handle(command, handler, timeout, resubscribe=True)

    def execute_async_no_resubscribe(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """As execute_async, for subscriptions that are not to outlive the connection."""
        return self._handle(command, handler, timeout, resubscribe=False)

    def send(self, command: Command) -> str:
        """Send a command and wait for nothing; its command id. Answers go to the last chance handler."""
        self._check_usable()
        with self._lock:
            command_id = self._engine.send(command, time.monotonic())
        self._after_call()
        return command_id

    def _start(
        self,
        command: Command,
        route: Route | None,
        timeout: Timeout,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> tuple[Ticket, Message | None]:
        self._check_may_wait(command.command)
        limit = command.timeout if timeout is DEFAULT else timeout
        with self._lock:
            ticket = self._engine.execute(
                command, route, time.monotonic(), resubscribe=resubscribe, awaited=awaited
            )
            ticket.waiter = threading.Event()
        self._after_call()
        return ticket, self._await(ticket, self.timeout if limit is DEFAULT else limit)

    def _replaced(self, command: Command) -> Route | None:
        """The route that a command with `replace` keeps using."""
        if command.sub_id is not None and "replace" in option_names(command.options):
            return self._engine.route_of(command.sub_id)
        return None

    def _needs_route(self, command: Command) -> bool:
        if command.command not in _SUBSCRIBING:
            return bool(command.ack_type)
        names = option_names(command.options)
        known = command.sub_id is not None and self._engine.route_of(command.sub_id) is not None
        return not ("resume" in names or ("pause" in names and known))

    def _handle(
        self, command: Command, handler: Handler | None, timeout: Timeout, *, resubscribe: bool
    ) -> str:
        route = self._replaced(command)
        if route is not None:
            route.handler = handler or route.handler
        elif self._needs_route(command):
            route = Route(RouteKind.COMMAND, owner=self, handler=handler, auto_ack=self.auto_ack)
        ticket, _ = self._start(command, route, timeout, resubscribe=resubscribe)
        return (
            (ticket.sub_id or ticket.query_id or ticket.command_id)
            if route is not None
            else ticket.command_id
        )

    def _stream(
        self,
        command: Command,
        timeout: Timeout,
        *,
        control: bool,
        resubscribe: bool = True,
        max_depth: int | None = None,
        on_full: OnFull | None = None,
        conflate: bool = False,
    ) -> MessageStream:
        route = self._replaced(command)
        if route is not None and isinstance(route.sink, StreamBuffer):
            stream = route.sink.stream() if route.sink.stream is not None else None
            if stream is not None:
                self._start(command, route, timeout, resubscribe=resubscribe)
                return stream
        new = route is None
        if route is None:
            route = Route(RouteKind.COMMAND, owner=self, auto_ack=self.auto_ack)
        default_depth, default_on_full = self._stream_settings
        buffer = StreamBuffer(
            self,
            route,
            default_depth if max_depth is None else max_depth,
            on_full or default_on_full,
            control or command.command not in _SUBSCRIBING,
        )
        stream = MessageStream(self, command, route, buffer)
        if conflate:
            stream.conflate()
        if new and self._needs_route(command):
            route.sink = buffer
            try:
                self._start(command, route, timeout, resubscribe=resubscribe)
            except BaseException:
                stream.closed = True
                raise
        else:  # nothing will come through this stream
            stream.closed = True
            buffer.end()
            self._start(command, None if new else route, timeout, resubscribe=resubscribe)
        return stream

    # Publishing

    def publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
    ) -> int:
        """Publish a message; its sequence number, 0 without a publish store. Never waits for the server."""
        if expiration is None and correlation_id is None and sow_key is None:
            template = self._templates.get(topic)
            if template is None:
                template = self._templates[topic] = PublishTemplate("publish", topic)
                if len(self._templates) > MAX_TEMPLATES:
                    self._templates.clear()
        else:
            template = _template("publish", topic, expiration, correlation_id, sow_key)
        return self._publish(template, data)

    def delta_publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        expiration: int | None = None,
        correlation_id: str | None = None,
        sow_key: str | None = None,
    ) -> int:
        """Publish changes to a record; as publish."""
        return self._publish(_template("delta_publish", topic, expiration, correlation_id, sow_key), data)

    def _publish(self, template: PublishTemplate, data: Data | object) -> int:
        body = data if type(data) is bytes else self._encode(data)
        store = self.publish_store
        engine = self._engine
        try:
            with self._lock:
                sequence = engine.publish_body(template, body)
                pending_bytes = engine.pending_bytes
        except StoreFullException:
            sequence = self._publish_when_room(template, body)
            pending_bytes = engine.pending_bytes
        except AMPSException:
            self._check_usable()
            raise
        if store is not None:
            store.sync(sequence)
        self._sent_publish(pending_bytes)
        return sequence

    def _encode(self, data: Data | object) -> bytes:
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        return self.codec.encode(data)

    def _publish_when_room(self, template: PublishTemplate, body: bytes) -> int:
        """The publish store is full: wait for acknowledgements, unless that is not wanted or not possible."""
        store = self.publish_store
        assert store is not None
        if store.on_full != "wait" or threading.current_thread() is self._rx:
            with self._lock:
                return self._engine.publish_body(template, body)
        self._pump()
        while True:
            seen = self._discards
            try:
                with self._lock:
                    return self._engine.publish_body(template, body)
            except StoreFullException:
                with self._discarded:
                    while self._discards == seen:
                        self._discarded.wait()

    def _notice_discard(self, sequence: int) -> None:
        """The store has dropped messages (or the connection is gone): whoever waits for that looks again.

        Runs with the engine lock held, so nobody may take that while holding the condition.
        """
        with self._discarded:
            self._discards += 1
            self._discarded.notify_all()

    def flush(self, ack_type: AckType = AckType.COMPLETED, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the server has dealt with everything sent before, as far as `ack_type` says."""
        self._start(Command("flush"), None, timeout, awaited=ack_type)

    def publish_flush(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything published before is acknowledged as persisted; without a store, flush()."""
        store = self.publish_store
        if store is None:
            self.flush(timeout=timeout)
            return
        self._check_may_wait("publish_flush")
        target = store.highest_unpersisted()
        if target == 0:
            return
        if not self.connected:
            raise DisconnectedException(f"publish_flush: not connected, {self.unpersisted_count} unpersisted")
        with self._lock:  # makes the server report at once what it would report within its interval
            self._engine.execute(Command("flush"), None, time.monotonic(), awaited=AckType.PERSISTED)
        self._after_call()
        deadline = _deadline(self.timeout if timeout is DEFAULT else timeout)

        def drained() -> bool:
            return not 0 < store.lowest_unpersisted() <= target

        self._begin_wait()
        try:
            with self._discarded:
                self._discarded.wait_for(lambda: drained() or not self.connected, _left(deadline))
        finally:
            self._end_wait()
        if not drained():
            count = self.unpersisted_count
            if not self.connected:
                raise DisconnectedException(f"publish_flush: connection lost, {count} unpersisted")
            raise TimedOutException(f"publish_flush: {count} messages not persisted in time")

    # Subscribing and querying

    def _subscribe(
        self,
        name: str,
        topic: str,
        filter: str | None,
        handler: Handler | None,
        keywords: Mapping[str, Any],
        *,
        query: bool = False,
        call: str | None = None,
        forbidden: Iterable[str] = (),
        bookmark: str | None = None,
    ) -> MessageStream | str:
        settings = split_keywords(keywords, query=query, call=call or name, forbidden=forbidden)
        if bookmark is not None:
            settings.headers["bookmark"] = bookmark
        command = Command(name, topic, filter=filter, options=settings.options, **settings.headers)
        if handler is not None:
            return self._handle(command, handler, settings.timeout, resubscribe=settings.resubscribe)
        return self._stream(
            command,
            settings.timeout,
            control=settings.control,
            resubscribe=settings.resubscribe,
            max_depth=settings.max_depth,
            on_full=settings.on_full,
            conflate=settings.conflate,
        )

    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[SubscribeArgs]
    ) -> MessageStream: ...
    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> str: ...
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> MessageStream | str:
        """Subscribe to a topic or topic expression: a stream, or with a handler the subscription id."""
        return self._subscribe("subscribe", topic, filter, handler, kw)

    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: str = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> MessageStream: ...
    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: str = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> str: ...
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: str = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> MessageStream | str:
        """Replay a recorded topic from a bookmark, then go on live. Pass a stable sub_id with MOST_RECENT."""
        if bookmark.lower() == MOST_RECENT and self.bookmark_store is not None and "sub_id" not in kw:
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
    ) -> MessageStream: ...
    @overload
    def delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> str: ...
    def delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> MessageStream | str:
        """Subscribe to the changed fields of records."""
        return self._subscribe("delta_subscribe", topic, filter, handler, kw, forbidden=("bookmark",))

    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records: a stream that ends with them, or with a handler the query id."""
        return self._subscribe("sow", topic, filter, handler, kw, query=True)

    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow_and_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records and go on with every change, without a gap."""
        return self._subscribe("sow_and_subscribe", topic, filter, handler, kw, query=True)

    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow_and_delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records and go on with the changed fields."""
        return self._subscribe("sow_and_delta_subscribe", topic, filter, handler, kw, query=True)

    def sow_count(self, topic: str, filter: str | None = None, *, timeout: Timeout = DEFAULT) -> int:
        """How many records match, without fetching them."""
        command = Command("sow", topic, filter=filter, options="top_n=0")
        _, ack = self._start(command, Route(RouteKind.QUERY, owner=self), timeout, awaited=AckType.STATS)
        return (ack.matches if ack is not None else None) or 0

    def sow_delete(
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
        """Delete records by exactly one of filter, keys and data; the `stats` (or `processed`) ack."""
        if sum(selector is not None for selector in (filter, keys, data)) != 1:
            raise ValueError("sow_delete takes exactly one of filter, keys and data")
        body = b"" if data is None else self._encode(data)
        if data is not None and not body:
            raise ValueError("sow_delete by data needs a body")
        command = Command("sow_delete", topic, filter=filter, sow_keys=keys, data=body, options=options)
        _, ack = self._start(command, None, timeout, awaited=AckType.STATS if stats else AckType.PROCESSED)
        assert ack is not None
        return ack

    def unsubscribe(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """End subscriptions; all of them without arguments. Late messages go to the last chance handler."""
        self._start(Command("unsubscribe", sub_id=",".join(sub_ids) or "all"), None, timeout)

    def pause(self, *sub_ids: str) -> None:
        """Pause bookmark subscriptions; messages already sent still arrive."""
        self._pause("pause", sub_ids)

    def resume(self, *sub_ids: str) -> None:
        """Resume paused subscriptions; those resumed by one call share one replay."""
        self._pause("resume", sub_ids)

    def _pause(self, option: str, sub_ids: tuple[str, ...]) -> None:
        if not sub_ids:
            raise ValueError(f"{option} needs at least one subscription id")
        self._start(Command("subscribe", sub_id=",".join(sub_ids), options=option), None, DEFAULT)

    # Acknowledging and discarding

    def ack(self, target: Message | str, bookmarks: str | Iterable[str] = (), options: str = "") -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic. Batched; never waits for the server."""
        sub_id: str | None = None
        if isinstance(target, Message):
            route = target._route
            leased = target.lease_period is not None or (route is not None and route.max_backlog is not None)
            if target.command != "publish" or not leased or target.topic is None or target.bookmark is None:
                return
            topic, bookmark, sub_id = target.topic, target.bookmark, target.sub_id
        else:
            topic = target
            bookmark = bookmarks if isinstance(bookmarks, str) else ",".join(bookmarks)
            if not topic or not bookmark:
                raise ValueError("ack needs a message, or a topic and bookmarks")
        with self._lock:
            self._engine.ack(topic, bookmark, options, sub_id, time.monotonic())
        self._after_call()

    def flush_acks(self) -> None:
        """Send the queue acknowledgements that wait in batches."""
        with self._lock:
            self._engine.flush_acks()
        self._after_call()

    def discard(self, target: Message | str, store_seq: int = 0) -> None:
        """Tell the bookmark store that a message is done with: a message, or its sub id and store_seq."""
        if self.bookmark_store is None:
            return
        if isinstance(target, Message):
            if target.store_seq and target.sub_id is not None:
                self.bookmark_store.discard(target.sub_id, target.store_seq)
        else:
            self.bookmark_store.discard(target, store_seq)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Where the bookmark store would resume this subscription; None = nothing known."""
        return self.bookmark_store.get_most_recent(sub_id) if self.bookmark_store is not None else None

    def set_heartbeat(self, interval: float | None, timeout: float | None = None) -> None:
        """Exchange heartbeats every `interval` seconds from now on (and after each logon); None = stop."""
        with self._lock:
            self._engine.config = replace(
                self._engine.config,
                heartbeat_s=_positive("heartbeat", interval),
                heartbeat_timeout_s=_positive("heartbeat timeout", timeout),
            )
            if self._engine.logged_on:
                self._engine.start_heartbeat(time.monotonic())
        self._after_call()

    # Handlers: each setter takes None to remove

    def set_exception_listener(self, fn: Callable[[BaseException], object] | None) -> None:
        """What handlers and listeners raise goes here; without one it is logged."""
        self._exception_listener = fn

    def set_transport_filter(self, fn: Callable[[bytes, bool], object] | None) -> None:
        """`fn(data, outgoing)` sees all bytes, before encryption and after decryption."""
        self._transport_filter = fn

    def set_last_chance_handler(self, fn: Handler | None) -> None:
        """Messages nobody else took."""
        self._last_chance_handler = fn

    def set_duplicate_handler(self, fn: Handler | None) -> None:
        """Messages the bookmark store has seen."""
        self._duplicate_handler = fn

    def set_global_handler(self, command: str, fn: Handler | None) -> None:
        """Every message of one type (`ack`, `publish` …), before it goes its usual way."""
        if fn is None:
            self._global_handlers.pop(command, None)
        else:
            self._global_handlers[command] = fn
        with self._lock:
            self._engine.set_global(command, fn is not None)

    def set_failed_write_handler(self, fn: Callable[[Message, str], object] | None) -> None:
        """`fn(message, reason)` for publishes and deletes that the server refused."""
        self._failed_write_handler = fn

    def set_disconnect_handler(self, fn: "Callable[[Client, ConnectionException], object] | None") -> None:
        """`fn(client, error)` when the connection is lost; it may connect again."""
        self._disconnect_handler = fn

    def set_receive_started_callback(self, fn: Callable[[], object] | None) -> None:
        """Called on each new receive thread."""
        self._receive_started = fn

    def add_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Told every connection state; must not wait for the server."""
        self._state_listeners.append(fn)

    def remove_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """No longer told."""
        if fn in self._state_listeners:
            self._state_listeners.remove(fn)

    def clear_connection_state_listeners(self) -> None:
        """Nobody is told any more."""
        self._state_listeners.clear()


def _template(
    command: str, topic: str, expiration: int | None, correlation_id: str | None, sow_key: str | None
) -> PublishTemplate:
    if correlation_id is not None:
        check_base64("correlation_id", correlation_id)
    if sow_key is not None:
        check_base64("sow_key", sow_key)
    return PublishTemplate(
        command, topic, expiration=expiration, correlation_id=correlation_id, sow_key=sow_key
    )


def _positive(name: str, seconds: float | None) -> float | None:
    if seconds is not None and seconds <= 0:
        raise ValueError(f"{name} must be positive: {seconds}")
    return seconds


def _deadline(timeout: Timeout) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
