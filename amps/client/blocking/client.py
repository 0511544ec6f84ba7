"""The blocking client: the class that applications use.

A Client has one connection at a time; any number of threads may use it. Calls either send and return (publish,
ack, unsubscribing a stream) or wait for the server's answer. No call waits longer than its `timeout`, whether for
an answer, for another thread of the client, or for a server that does not read. Messages are delivered
to handlers, on the receive thread, or to MessageStreams, on the thread that reads them.

This module has the public calls only. Each part does one thing: `connecting` makes connections, `commanding` sends
commands and waits for answers, `publishing` publishes, `runtime` has the threads, and the engine
(`amps.client.protocol`) the rules of the protocol.
"""

import logging
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, Self, Unpack, overload

from amps.client.blocking.commanding import Commands
from amps.client.blocking.connecting import Connector, DisconnectHandler
from amps.client.blocking.deadlines import left_until
from amps.client.blocking.publishing import Publisher
from amps.client.blocking.runtime import Runtime
from amps.client.blocking.streams import MessageStream
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
from amps.client.protocol.command import (
    Command,
    TransactionCommand,
    check_number,
    check_seconds,
    check_timeout,
)
from amps.client.protocol.engine_types import ClientStats, Route, RouteKind
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


class Client:
    """A connection to a server. Use `with client:`, or `open` and `close`; all calls are thread-safe.

    - name: the client name; bookmarks depend on it. A publisher that continues its sequence must have the same name
      in each run. By default, a unique name.
    - uri: `tcp://user:password@host:port/amps/json`; schemes tcp, tcps (TLS) and unix.
    - authenticator: supplies the password; by default, the password of the connection string.
    - publish_store: keeps publishes until they are persisted; after a reconnect the client sends them again.
    - bookmark_store: remembers what bookmark subscriptions have processed.
    - codec: encodes and decodes bodies; a name or a Codec, by default the codec of the message type.
    - timeout: seconds that calls wait for the server, to answer and to read; None = for ever. Calls have a `timeout`
      argument, too. A call that exceeds it raises TimedOutException; the connection stays usable.
    - heartbeat, heartbeat_timeout: seconds between heartbeats, and of silence after which the server counts as lost.
    - auto_ack, ack_batch_size, ack_timeout: how queue messages are acknowledged.
    - batch_size: records in one message of a query's result.
    - max_depth, on_full: how many messages a stream buffers, and what a full one does: `pause` reading,
      `drop_oldest`, or `raise` (end the stream).
    - dispatch: `inline` runs handlers on the receive thread, where no call may wait for the server; `thread` runs
      them on a separate thread, where calls may wait.
    - subscription_manager, retry_on_disconnect: for HAClient. The manager keeps the subscriptions that are entered
      again; a command that waits for its answer when the connection is lost is sent again, or (False) fails.
    - logon_options, logon_correlation: sent with the logon.
    - tls: the context for tcps; by default the server is verified against the system's certificates.
    - http_headers: lines, or names and values, of the HTTP request that `http_preflight=true` sends.
    - max_message_size: bytes; larger messages are refused both ways.
    - logger: by default `amps.client`.

    Every call may raise, besides what it says itself:

    - ValueError or TypeError for wrong arguments, before anything is sent.
    - A CommandException if the server refuses the command: BadFilterException, NotEntitledException and others. The
      client stays usable.
    - DisconnectedException without a connection, or if it is lost meanwhile; for an HAClient only if it gives up.
    - TimedOutException after `timeout` seconds; UsageException if the call may not be made here.
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
        dispatch: Literal["inline", "thread"] = "inline",
        retry_on_disconnect: bool = True,
        logon_options: str = "",
        logon_correlation: str | None = None,
        tls: ssl.SSLContext | None = None,
        http_headers: Iterable[str] | Mapping[str, str] = (),
        max_message_size: int = 200 * 2**20,
        logger: logging.Logger | None = None,
    ) -> None:
        if dispatch not in ("inline", "thread"):
            raise ValueError(f"dispatch must be 'inline' or 'thread': {dispatch!r}")
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
        self._engine = settings.new_engine()
        self._runtime = Runtime(self._engine, self._handlers, dispatch, max_depth)
        self._commands = Commands(self._runtime, settings)
        self._publisher = Publisher(self._runtime, self._commands, settings)
        self._outbox = self._engine.outbox
        self._connector = Connector(self._runtime, self._commands, settings, uri)
        self._disconnect_handler = DisconnectHandler(weakref.ref(self), self._runtime)
        self._runtime.wire.policy = weakref.ref(self._disconnect_handler)
        if publish_store is not None:
            publish_store.set_discard_listener(self._runtime.waits.notice_discard)

    def __repr__(self) -> str:
        return f"<Client {self.name!r} {self.state.name}>"

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        return self._settings.codec_of(self._runtime.wire.uri)

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
            bytes_in=self._runtime.bytes_in,
            bytes_out=self._runtime.sender.bytes_out,
            handler_errors=self._handlers.errors,
            unpersisted=self.unpersisted_count,
        )

    # Connection

    def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Open the connection. Nothing is sent, except an HTTP upgrade request if the URI requires it.

        `timeout`, in seconds, covers the lookup of the host name, the connection and its TLS handshake. Raises
        AlreadyConnectedException, ConnectionRefusedException, and for a connection string that cannot work
        InvalidUriException, InvalidTransportOptionsException or TransportTypeException.
        """
        self._connector.connect(uri, self._settings.deadline(timeout))

    def logon(
        self,
        *,
        authenticator: Authenticator | None = None,
        options: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Message:
        """Log on and return the acknowledgement. A logon that is refused, or not answered within `timeout` seconds,
        closes the connection.

        Raises AuthenticationException, NameInUseException, DuplicateLogonException, PublishStoreGapException.
        """
        wire = self._runtime.wire
        wire.check_may_wait("logon")
        return self._connector.log_on(wire.transport, authenticator, options, timeout)

    def open(self, *, timeout: Timeout = DEFAULT) -> Self:
        """Connect and log on, both within `timeout` seconds. Raises as `connect` and `logon` do."""
        deadline = self._settings.deadline(timeout)
        self.connect(timeout=timeout)
        self.logon(timeout=left_until(deadline))
        return self

    def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Send unsent queue acknowledgements and close the connection; the client may connect again.

        If the server is slow, the call waits at most `timeout` seconds for it to read the bytes sent before, then drops
        them; a publish store keeps its messages. In this time it also waits for a running handler, at most 5 s.
        """
        self._runtime.leave(self._settings.deadline(timeout))

    def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect as `disconnect` does; the client cannot be used again. Safe to call again. In a forked child it
        only closes the child's copy of the socket.

        Running handlers of `consume` with a concurrency may finish within `timeout` seconds.
        """
        limit = check_timeout(self.timeout if timeout is DEFAULT else timeout)
        if not self._runtime.wire.closed and not self._runtime.wire.disowned:
            self._settings.warn_of_unpersisted()
            self._runtime.close(limit)

    def set_heartbeat(self, interval: float | None, timeout: float | None = None) -> None:
        """Exchange heartbeats every `interval` seconds from now on (and after each logon); None = stop."""
        engine = self._engine
        with self._runtime.wire.lock:
            engine.config = replace(
                engine.config,
                heartbeat_s=positive("heartbeat", interval),
                heartbeat_timeout_s=positive("heartbeat timeout", timeout),
            )
            if engine.logged_on:
                engine.start_heartbeat(time.monotonic())
        self._runtime.sender.after_call()

    # Commands

    def execute(
        self, command: Command, *, control: bool = False, timeout: Timeout = DEFAULT
    ) -> MessageStream:
        """Send a command and return its results as a stream. With `control` it includes group markers and acks."""
        return self._commands.stream(self, command, CallSettings.of_command(control, timeout))

    def execute_async(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Send a command whose results go to `handler`; return its id once the server has accepted it."""
        return self._commands.handle(self, command, handler, timeout, resubscribe=True)

    def execute_async_no_resubscribe(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Like execute_async, for subscriptions that end with the connection."""
        return self._commands.handle(self, command, handler, timeout, resubscribe=False)

    def send(self, command: Command, *, timeout: Timeout = DEFAULT) -> str:
        """Send a command without waiting for an answer; return its command id. Answers go to the last chance handler.

        If the server does not read, the call waits, at most `timeout` seconds. If it times out, nothing was sent.
        """
        return self._commands.send(command, timeout)

    def flush(self, ack_type: AckType = AckType.COMPLETED, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the server has acknowledged, with `ack_type`, that it processed everything sent before.

        Raises TimedOutException after `timeout` seconds, DisconnectedException if the connection is lost meanwhile.
        """
        self._commands.start(Command("flush"), None, timeout, awaited=ack_type)

    def unsubscribe(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """End subscriptions; without arguments, all of them. Late messages go to the last chance handler."""
        self._commands.start(Command("unsubscribe", sub_id=",".join(sub_ids) or "all"), None, timeout)

    def pause(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Pause bookmark subscriptions; messages already sent still arrive."""
        self._runtime.wire.check_usable()
        self._commands.start(pause_command(self._engine, "pause", sub_ids), None, timeout)

    def resume(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Resume paused subscriptions; those resumed by one call share one replay."""
        self._runtime.wire.check_usable()
        self._commands.start(pause_command(self._engine, "resume", sub_ids), None, timeout)

    # Publishing

    def publish(
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
        `timeout` seconds. Then it raises TimedOutException, and the message was neither sent nor stored: it may be
        published again. Bytes that a slow server has not read when the call returns are sent by a thread of the client.
        """
        if not fields or is_plain(fields):
            sequence = self._outbox.publish(topic, data)
            if sequence >= 0:
                return sequence
            return self._publisher.follow(sequence, topic, data, timeout)
        template = publish_template("publish", topic, fields, stored=self._outbox.numbered)
        return self._publisher.publish(template, data, timeout)

    def delta_publish(
        self,
        topic: str,
        data: Data | object = b"",
        *,
        timeout: Timeout = DEFAULT,
        **fields: Unpack[PublishArgs],
    ) -> int:
        """Publish changes to a record; otherwise like `publish`."""
        template = publish_template("delta_publish", topic, fields, stored=self._outbox.numbered)
        return self._publisher.publish(template, data, timeout)

    def publish_persisted(
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
        ticket, _ = self._commands.start(command, None, timeout, awaited=AckType.PERSISTED)
        return ticket.sequence

    def publish_flush(self, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything published before is acknowledged as persisted; without a store, flush().

        The limit of `timeout` seconds includes the wait for the server to read the bytes sent before. Raises
        TimedOutException after it; the messages stay in the store. Messages that the server refuses are reported to the
        failed write handler, not here.
        """
        if self.publish_store is None:
            self.flush(timeout=timeout)
        else:
            self._publisher.flush(timeout)

    # Acknowledging and discarding

    def ack(self, target: Message | str, bookmarks: str | Iterable[str] = (), options: str = "") -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic. Batched; never waits for the server."""
        self._commands.ack(target, bookmarks, options)

    def transaction(self, *messages: Message, timeout: Timeout = DEFAULT) -> Transaction:
        """A transaction that acknowledges queue messages and publishes, all or nothing; see `Message.transaction`.

        timeout: seconds that leaving its block waits at most.
        """

        def send(command: TransactionCommand, timeout: Timeout) -> None:
            self._commands.start(command, None, timeout)

        return Transaction(messages, self._commands.encode, send, timeout, waits=True)

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches."""
        self._commands.flush_acks()

    def discard(self, target: Message | str, store_seq: int = 0) -> None:
        """Mark a message, or a sub id and store_seq, as processed in the bookmark store."""
        self._runtime.wire.check_usable()
        discard(self._settings.bookmark_store, target, store_seq)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark from which the bookmark store would resume this subscription; None = nothing known."""
        self._runtime.wire.check_usable()
        return self.bookmark_store.get_most_recent(sub_id) if self.bookmark_store is not None else None

    # Subscribing. Each returns a MessageStream, or with a handler the subscription (or query) id.

    def _enter(
        self, command: Command, settings: CallSettings, handler: Handler | None
    ) -> MessageStream | str:
        if handler is None:
            return self._commands.stream(self, command, settings)
        return self._commands.handle(
            self, command, handler, settings.timeout, resubscribe=settings.resubscribe
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
    ) -> MessageStream: ...
    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> str: ...
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> MessageStream | str:
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
        return self._enter(*subscription("delta_subscribe", topic, filter, kw, forbidden=("bookmark",)), handler)

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
        """Query the current records; return a stream that ends after them, or with a handler the query id."""
        return self._enter(*subscription("sow", topic, filter, kw, query=True), handler)

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
        """Query the current records and continue with every change, without a gap."""
        return self._enter(*subscription("sow_and_subscribe", topic, filter, kw, query=True), handler)

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
        """Query the current records and continue with the changed fields."""
        return self._enter(*subscription("sow_and_delta_subscribe", topic, filter, kw, query=True), handler)

    def sow_count(self, topic: str, filter: str | None = None, *, timeout: Timeout = DEFAULT) -> int:
        """Return the number of records that match, without fetching them."""
        command = Command("sow", topic, filter=filter, options="top_n=0")
        route = Route(RouteKind.QUERY, owner=self)
        _, ack = self._commands.start(command, route, timeout, awaited=AckType.STATS)
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
        """Delete records by exactly one of filter, keys and data; return the `stats` (or `processed`) ack."""
        body = None if data is None else self._commands.encode(data)
        command = delete_command(topic, filter, keys, body, options)
        awaited = AckType.STATS if stats else AckType.PROCESSED
        _, ack = self._commands.start(command, None, timeout, awaited=awaited)
        assert ack is not None
        return ack

    def consume(
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
        `concurrency` handlers run at once, in threads; one runs as other handlers do.
        """
        command = consumption(queue, handler, filter, max_backlog, concurrency, options, sub_id)
        return self._commands.handle(
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
        with self._runtime.wire.lock:
            self._engine.set_global(command, fn is not None)

    def set_failed_write_handler(self, fn: Callable[[Message, str], object] | None) -> None:
        """Set `fn(message, reason)` for publishes and deletes that the server refused."""
        check_handler(fn)
        self._handlers.failed_write_handler = fn

    def set_disconnect_handler(self, fn: "Callable[[Client, ConnectionException], object] | None") -> None:
        """Set `fn(client, error)`, called when the connection is lost; it may connect again."""
        check_handler(fn)
        self._disconnect_handler.handler = fn

    def set_receive_started_callback(self, fn: Callable[[], object] | None) -> None:
        """Set a function that is called first when a new connection begins to receive, on its receive thread."""
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
