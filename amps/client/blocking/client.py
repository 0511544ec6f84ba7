"""The blocking client: the class that applications use.

A Client has one connection at a time; any number of threads may use it. Calls either send and return (publish,
ack, unsubscribing a stream) or wait for the server's answer. No call waits longer than its `timeout`, whether for
an answer, for another thread of the client, or for a server that does not read. Messages are delivered
to handlers, on the receive thread, or to MessageStreams, on the thread that reads them. The protocol rules
are in `engine`, the threads and locks in `runtime`.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, Self

from amps.client.blocking.publishing import Publishing
from amps.client.blocking.sending import acquire_until, left_until
from amps.client.blocking.subscribing import Subscribing
from amps.client.blocking.transport import SocketTransport, dial
from amps.client.enums import DEFAULT, ConnectionState, Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    DuplicateLogonException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.settings import ClientSettings, positive
from amps.client.payloads.codecs import Codec
from amps.client.protocol.command import (
    PublishTemplate,
    check_text,
    check_timeout,
)
from amps.client.protocol.engine_types import ClientStats, Ticket
from amps.client.protocol.message import Message
from amps.client.protocol.options import OnFull
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.servers.auth import Authenticator, DefaultAuthenticator
from amps.client.uri import ConnectionUri, parse_uri


class Client(Publishing, Subscribing):
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
            timeout=timeout, heartbeat=heartbeat, heartbeat_timeout=heartbeat_timeout,
            ack_batch_size=ack_batch_size, ack_timeout=ack_timeout, batch_size=batch_size,
            max_depth=max_depth, on_full=on_full, retry_on_disconnect=retry_on_disconnect,
            logon_options=logon_options, logon_correlation=logon_correlation, tls=tls,
            http_headers=http_headers, max_message_size=max_message_size, logger=logger,
        )  # fmt: skip
        self._settings = settings
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
        super().__init__(settings.new_engine(), self.name, dispatch, max_depth, settings.logger)
        self._stream_settings: tuple[int, OnFull] = (max_depth, on_full)
        self._parsed_uri: ConnectionUri | None = None
        self._templates: dict[str, PublishTemplate] = {}
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
    def stats(self) -> ClientStats:
        """A snapshot of the counters."""
        transport = self._transport
        return replace(
            self._engine.stats,
            messages_out=self._outbox.frames,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out - (transport.unsent_bytes if transport is not None else 0),
            handler_errors=self._handler_errors,
            unpersisted=self.unpersisted_count,
        )

    # Connection

    def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> None:
        """Open the connection. Nothing is sent, except an HTTP upgrade request if the URI requires it.

        `timeout`, in seconds, covers the lookup of the host name, the connection and its TLS handshake. Raises
        AlreadyConnectedException, ConnectionRefusedException, and for a connection string that cannot work
        InvalidUriException, InvalidTransportOptionsException or TransportTypeException.
        """
        self._check_usable()
        deadline = self._deadline(timeout)
        if not acquire_until(self._connect_lock, deadline):
            raise TimedOutException("connect: another thread is still connecting this client")
        try:
            if self._leaving and self._transport is not None:
                raise AlreadyConnectedException(
                    f"client {self.name!r} is still closing its connection, which ends when this handler returns"
                )
            if self.connected:
                raise AlreadyConnectedException(f"client {self.name!r} is connected; disconnect first")
            text = uri or self.uri
            if text is None:
                raise self._settings.missing_uri()
            parsed = parse_uri(text)
            transport = dial(
                parsed,
                timeout_s=left_until(deadline),
                tls=self._settings.tls,
                http_headers=self._settings.http_headers,
                opened=self._dialling,
            )
            self.uri = text
            self._parsed_uri = parsed
            self._attach(transport, lambda now: self._made(now, parsed))
        finally:
            self._connect_lock.release()

    def _made(self, now: float, uri: ConnectionUri) -> None:
        """Note that a connection is made; the engine lock is held. If it raises, the connection is closed."""
        self._engine.connection_made(now, uri)

    def _dialling(self, sock: socket.socket) -> None:
        """Called with each socket before it is connected."""

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
        self._check_may_wait("logon")
        return self._log_on(self._transport, authenticator, options, timeout)

    def _log_on(
        self,
        transport: SocketTransport | None,
        authenticator: Authenticator | None,
        options: str | None,
        timeout: Timeout,
    ) -> Message:
        """Log on over this connection; an authenticator may take so long that it is not the client's any more."""
        check_text("options", options or "")
        if self._parsed_uri is None or transport is None or not self.connected:
            # The error that ended the connection is more specific: a TLS server refuses a certificate this way.
            cause = self._engine.lost_by
            if cause is None:
                raise DisconnectedException("connect before logon")
            raise DisconnectedException(str(cause), reason=cause.reason, message=cause.message)
        authority = authenticator or self._settings.authenticator or DefaultAuthenticator()
        asked = type(authority) is not DefaultAuthenticator  # a subclass may supply another password
        username, secret = self._parsed_uri.user, self._parsed_uri.password
        password = authority.authenticate(username or "", secret or "")
        deadline = self._deadline(timeout)
        self._make_room("logon", deadline)
        ticket: Ticket | None = None
        try:
            while True:
                with self._lock:
                    if self._transport is not transport:
                        self._engine.check_connected("logon")
                        raise DisconnectedException("logon: the connection was lost")
                    ticket = self._engine.logon(
                        time.monotonic(),
                        username,
                        password if asked or secret is not None else None,
                        self._settings.logon_options if options is None else options,
                        ticket,
                    )
                    ticket.waiter = threading.Event()
                self._send_outgoing()
                ack = self._await(ticket, left_until(deadline))
                if ack is not None:
                    break
                username, challenge = ticket.challenge or ("", "")
                password, asked = authority.retry(username, challenge), True
            authority.completed(username or "", password, ack.reason or "")
        except (DuplicateLogonException, UsageException):
            raise
        except BaseException:
            self._leave(0, transport)
            raise
        self._send_outgoing_once()  # the heartbeat command is sent before any other call
        return ack

    def open(self, *, timeout: Timeout = DEFAULT) -> Self:
        """Connect and log on, both within `timeout` seconds. Raises as `connect` and `logon` do."""
        deadline = self._deadline(timeout)
        self.connect(timeout=timeout)
        self.logon(timeout=left_until(deadline))
        return self

    def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Send unsent queue acknowledgements and close the connection; the client may connect again.

        If the server is slow, the call waits at most `timeout` seconds for it to read the bytes sent before, then drops
        them; a publish store keeps its messages. The call waits at most 5 s more for a running handler.
        """
        self._leave(self.timeout if timeout is DEFAULT else timeout)

    def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect as `disconnect` does; the client cannot be used again. Safe to call again. In a forked child it
        only closes the child's copy of the socket.
        """
        limit = check_timeout(self.timeout if timeout is DEFAULT else timeout)
        if self._closed or self._disowned:
            return
        unpersisted = self.unpersisted_count
        if unpersisted:
            self._logger.warning(
                "client %s: closed with %d messages not known to be persisted; publish_flush waits",
                self.name, unpersisted,
            )  # fmt: skip
        self._closed = True
        self._closing = True
        self._leave(limit)
        if self._transport is None:  # else a handler closes its client: the receive thread does the rest
            self._finish_close()

    def set_disconnect_handler(self, fn: "Callable[[Client, ConnectionException], object] | None") -> None:
        """Set `fn(client, error)`, called when the connection is lost; it may connect again."""
        self._disconnect_handler = fn

    def _on_disconnect(self, error: AMPSException) -> None:
        handler = self._disconnect_handler
        if handler is not None:
            self._call(handler, self, error)

    def set_heartbeat(self, interval: float | None, timeout: float | None = None) -> None:
        """Exchange heartbeats every `interval` seconds from now on (and after each logon); None = stop."""
        with self._lock:
            self._engine.config = replace(
                self._engine.config,
                heartbeat_s=positive("heartbeat", interval),
                heartbeat_timeout_s=positive("heartbeat timeout", timeout),
            )
            if self._engine.logged_on:
                self._engine.start_heartbeat(time.monotonic())
        self._after_call()
