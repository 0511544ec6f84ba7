"""The highly available client: it chooses its server, reconnects and recovers by itself (client.md §9, §19.5).

An HAClient is a Client with another way to get a connection. After a loss it connects to the same or another server,
logs on, and lets the engine recover. Calls made in between wait, at most their `timeout`: the connection may be back in
time. `connection_info`, `reconnecting` and the connection state listeners show how it is.
"""

import logging
import os
import socket
import ssl
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, Self, TypedDict, Unpack

from amps.client.blocking.client import Client
from amps.client.blocking.reconnecting import Run, await_recovery, reconnect_loop
from amps.client.blocking.sending import deadline_of, left_until
from amps.client.enums import DEFAULT, Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.servers import RefusedSubscription, chooser_of
from amps.client.payloads.codecs import Codec
from amps.client.protocol.command import check_timeout
from amps.client.protocol.engine_types import RecoveryFailed
from amps.client.protocol.options import OnFull
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.servers.auth import Authenticator
from amps.client.servers.choosers import ConnectionInfo, ServerChooser
from amps.client.servers.delays import DelayStrategy, ExponentialDelayStrategy
from amps.client.servers.failover import Attempt, Failover
from amps.client.stores import (
    FileBookmarkStore,
    FilePublishStore,
    MemoryBookmarkStore,
    MemoryPublishStore,
)
from amps.client.uri import ConnectionUri, without_password


class ClientArgs(TypedDict, total=False):
    """The keyword arguments of Client that HAClient passes on."""

    authenticator: Authenticator | None
    publish_store: PublishStore | None
    bookmark_store: BookmarkStore | None
    subscription_manager: SubscriptionManager | None
    codec: Codec | str | None
    timeout: Timeout
    heartbeat: float | None
    heartbeat_timeout: float | None
    auto_ack: bool
    ack_batch_size: int
    ack_timeout: float | None
    batch_size: int
    max_depth: int
    on_full: OnFull
    dispatch: Literal["inline", "thread"]
    retry_on_disconnect: bool
    logon_options: str
    logon_correlation: str | None
    tls: ssl.SSLContext | None
    http_headers: Iterable[str] | Mapping[str, str]
    max_message_size: int
    logger: logging.Logger | None


class HAClient(Client):
    """A client that keeps a connection to one of several servers. All calls are thread-safe.

    - name, and all other arguments: as for Client. Without `bookmark_store`, a MemoryBookmarkStore is used.
    - servers: a connection string, several of them, or a ServerChooser.
    - delay_strategy: how long to wait before an attempt; by default ExponentialDelayStrategy().
    - attempt_timeout: seconds for connecting and logging on, and for each step of the recovery that makes no progress.
    - resume_streams: whether MessageStreams go on after a reconnect, as subscriptions with a handler do.
    - failed_resubscribe_handler: called with the command and the error of a subscription that a new server refuses.
      True: the subscription ends with the error. False, or no handler: that server counts as failed.

    After a loss, the client restores in this order: heartbeats, the messages of the publish store, queue
    acknowledgements not yet sent, subscriptions, and commands that wait. Bookmark subscriptions go on where the
    bookmark store has got to, the others with new messages; `sow_and_subscribe` queries again. A plain query that is
    cut off ends with DisconnectedException. Messages that the bookmark store has seen are not delivered again.

    Publishing without a connection: with a publish store the message is stored, and sent later. Without one, the call
    waits for a connection, at most `timeout` seconds, or (retry_on_disconnect=False) raises DisconnectedException.
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
        **client_args: Unpack[ClientArgs],
    ) -> None:
        check_timeout(attempt_timeout)
        chooser = chooser_of(servers)
        if client_args.get("bookmark_store") is None:
            client_args["bookmark_store"] = MemoryBookmarkStore()
        self._run: Run | None = None
        self._own_stores: list[PublishStore | BookmarkStore] = []
        super().__init__(name, **client_args)
        self.attempt_timeout = attempt_timeout
        """Seconds for connecting and logging on, and for each step of the recovery; None = no limit."""
        self._resume_streams = resume_streams
        self._failed_resubscribe_handler = failed_resubscribe_handler
        self._failover = Failover(self.name, chooser, delay_strategy or ExponentialDelayStrategy())

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

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not self._disowned:
            warnings.warn(
                f"client {self._name!r} was never closed", ResourceWarning, source=self, stacklevel=2
            )
            run.stop()
        super().__del__()

    def __repr__(self) -> str:
        return f"<HAClient {self.name!r} {'RECONNECTING' if self.reconnecting else self.state.name}>"

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

    def connect(self, uri: str | None = None, *, timeout: Timeout = DEFAULT) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an HAClient connects and logs on in one step: call connect_and_logon()")

    def logon(
        self,
        *,
        authenticator: Authenticator | None = None,
        options: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> NoReturn:
        """Not for this client. Raises UsageException."""
        raise UsageException("an HAClient connects and logs on in one step: call connect_and_logon()")

    def set_disconnect_handler(self, fn: Callable[[Client, ConnectionException], object] | None) -> NoReturn:
        """Not for this client, which reconnects by itself. Raises UsageException."""
        raise UsageException("an HAClient reconnects by itself: use add_connection_state_listener to watch it")

    def open(self, *, timeout: Timeout = None) -> Self:
        """Do `connect_and_logon`; return the client."""
        self.connect_and_logon(timeout=timeout)
        return self

    def connect_and_logon(self, *, timeout: Timeout = None) -> None:
        """Connect to one of the servers, log on and recover; return when the client is ready.

        By default the call tries until a server answers, or until the chooser or the delay strategy ends it
        (ConnectionException). After `timeout` seconds it raises TimedOutException.
        """
        self._check_may_wait("connect_and_logon")
        deadline = deadline_of(timeout)
        with self._lock:
            run = self._run
            mine = run is None
            if run is None:
                if self.connected:
                    raise AlreadyConnectedException(f"client {self.name!r} is connected; disconnect first")
                run = self._run = Run(threading.current_thread())
                self._engine.recovers = True
        if mine:
            self._connect_first(run, deadline)
        elif not self._states.wait_for(lambda: run.ended, left_until(deadline)):
            raise self._not_in_time()
        if run.error is not None:
            raise run.error

    def _connect_first(self, run: Run, deadline: float | None) -> None:
        try:
            ended = False
            while not ended:
                attempt = self._begin_attempt(run)
                if attempt is None:
                    return
                left_s = left_until(deadline)
                run.sleep(attempt.wait_s if left_s is None else min(attempt.wait_s, left_s))
                ended = left_until(deadline) != 0 and self._make_attempt(run, attempt, deadline)
                if not ended and left_until(deadline) == 0:
                    raise self._not_in_time()
        except BaseException as error:
            self._end_run(run, error)
            raise

    def _not_in_time(self) -> TimedOutException:
        last = self.connection_info.last_error
        return TimedOutException(f"no connection in time{f': {last}' if last is not None else ''}")

    def disconnect(self, *, timeout: Timeout = DEFAULT) -> None:
        """Close the connection and end reconnecting; subscriptions end. The client may connect again.

        Otherwise like Client.disconnect.
        """
        self._stop(DisconnectedException("the client was disconnected"))
        super().disconnect(timeout=timeout)

    def close(self, *, timeout: Timeout = DEFAULT) -> None:
        """Disconnect; the client cannot be used again. Ends reconnecting at once. Otherwise like Client.close."""
        if not self._closed and not self._disowned:
            self._stop(DisconnectedException("the client was closed"))
        super().close(timeout=timeout)

    def _finish_close(self) -> None:
        super()._finish_close()
        stores, self._own_stores = self._own_stores, []
        for store in stores:
            store.close()

    def _stop(self, error: DisconnectedException) -> None:
        """End reconnecting; what waits for a connection fails, and routes end when the connection does."""
        with self._lock:
            run, self._run = self._run, None
            self._engine.give_up(None)
        self._failover.left()
        if run is not None:
            run.error, run.ended = error, True
            run.stop()
        self._states.note(None)
        self._notice_discard(0)
        self._after_call()

    # Attempts

    def _begin_attempt(self, run: Run) -> Attempt | None:
        """Ask for the next attempt; None if the run has ended."""
        if run.stopped or self._disowned:
            return None
        try:
            return self._failover.next_attempt()
        except Exception as error:
            self._end_run(run, error)
            return None

    def _make_attempt(self, run: Run, attempt: Attempt, deadline: float | None) -> bool:
        """Try a server; return whether the run has ended: the client is ready, or no further attempt is made."""
        try:
            return self._attempt_ends(run, attempt, deadline)
        except Exception as error:  # of the application's chooser
            self._end_run(run, error)
            return True

    def _attempt_ends(self, run: Run, attempt: Attempt, deadline: float | None) -> bool:
        if run.stopped:
            return True
        try:
            self._try_server(run, attempt, deadline)
        except Exception as error:
            return run.stopped or self._failed(attempt, error)
        self._logger.info("client %s: connected to %s", self.name, without_password(attempt.uri))
        self._call(self._failover.succeeded, self.server_version)
        with self._lock:
            if self._run is not run:
                return True
            ready, lost_by = self._engine.ready, self._engine.lost_by
            if ready:
                self._run = None
        if not ready:
            return self._failed(attempt, lost_by or DisconnectedException("the connection was lost at once"))
        run.ended = True
        self._states.note(None)
        return True

    def _try_server(self, run: Run, attempt: Attempt, deadline: float | None) -> None:
        limit = deadline_of(self.attempt_timeout)
        limits = [moment for moment in (limit, deadline) if moment is not None]
        until = min(limits, default=None)
        try:
            super().connect(attempt.uri, timeout=left_until(until))
        finally:
            run.dialled()
        with self._lock:
            run.check()
            transport = self._transport
        if transport is None:
            raise self._engine.lost_by or DisconnectedException("the connection was lost at once")
        try:
            self._log_on(transport, attempt.authenticator, None, left_until(until))
            self._recover(run, deadline)
        except BaseException:
            self._leave(0, transport)  # what survives a loss is kept for the next attempt
            raise

    def _recover(self, run: Run, deadline: float | None) -> None:
        with self._lock:
            run.check()
            self._engine.recover(time.monotonic())
        self._after_call()
        self._begin_wait()  # the acknowledgements may follow messages that fill a stream's buffer
        try:
            await_recovery(
                run,
                self._engine,
                self._states,
                limit_s=self.attempt_timeout,
                deadline=deadline,
                progress=lambda: time.monotonic() if self._delivering else self._bytes_in,
                accept=self._failed_resubscribe_handler,
                leave_out=self._leave_out,
            )
        finally:
            self._end_wait()

    def _dialling(self, sock: socket.socket) -> None:
        run = self._run
        if run is not None and run.thread is threading.current_thread():
            run.dialling(sock)

    def _made(self, now: float, uri: ConnectionUri) -> None:
        run = self._run
        if run is None or run.thread is not threading.current_thread():
            raise DisconnectedException("the client was disconnected while it connected")
        super()._made(now, uri)

    def _leave_out(self, refused: RecoveryFailed) -> None:
        self._logger.warning(
            "client %s: the subscription %s is not entered again: %s",
            self.name, refused.command.sub_id, refused.error,
        )  # fmt: skip
        with self._lock:
            self._engine.leave_out(refused)
        self._after_call()

    def _failed(self, attempt: Attempt, error: Exception) -> bool:
        """Note that an attempt has failed; return False, since the run goes on."""
        self._logger.warning(
            "client %s: no connection to %s: %s",
            self.name, without_password(attempt.uri), str(error) or type(error).__name__,
        )  # fmt: skip
        _strip(error)
        if not isinstance(error, AlreadyConnectedException):  # a handler delays the end of the last connection
            self._failover.failed(error)
        return False

    def _end_run(self, run: Run, error: BaseException) -> None:
        """Give up: no server can be reached, or the application's chooser has failed."""
        reason = error if isinstance(error, AMPSException) else ConnectionException(repr(error))
        with self._lock:
            if self._run is not run:
                return
            self._run = None
            self._engine.give_up(reason)
        self._failover.left()
        run.error, run.ended = error if isinstance(error, Exception) else reason, True
        self._states.note(None)
        self._notice_discard(0)
        self._after_call()

    # Hooks of the runtime

    def _must_not_wait(self) -> bool:
        run = self._run
        return super()._must_not_wait() or (run is not None and run.thread is threading.current_thread())

    def _await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        engine = self._engine
        if not engine.recovers or not engine.config.retry or self._must_not_wait():
            raise refused
        self._begin_wait()
        try:
            self._states.wait_for(lambda: engine.ready or not engine.recovers, left_until(deadline))
        finally:
            self._end_wait()
        self._check_usable()
        if not engine.ready:
            raise refused

    def _on_disconnect(self, error: AMPSException) -> None:
        with self._lock:
            if self._run is not None or not self._engine.recovers:
                return
            self._run = Run(threading.current_thread())
        self._logger.warning(
            "client %s: lost the connection to %s: %s",
            self.name, without_password(self.uri or ""), error,
        )  # fmt: skip
        self._failover.lost(error)

    def _after_loss(self) -> Callable[[], None] | None:
        run = self._run
        if run is None or run.thread is not threading.current_thread():
            return None
        reference: weakref.ref[Any] = weakref.ref(self)

        def reconnect() -> None:
            try:
                reconnect_loop(reference, run)
            except BaseException as error:  # also SystemExit of a chooser: nobody would reconnect
                client = reference()
                if client is not None:
                    client._end_run(run, error)
            client = reference()
            if client is not None and run.error is not None and not run.stopped:
                client._report(run.error)

        return reconnect

    def _report(self, error: Exception) -> None:
        """Tell the application that reconnecting has ended."""
        if self._exception_listener is not None:
            self._call(self._exception_listener, error)
        else:
            self._logger.error("client %s: reconnecting has ended: %s", self.name, error)


def _strip(error: BaseException | None) -> None:
    """Remove the tracebacks of an error that is kept: their frames would keep the client alive."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
