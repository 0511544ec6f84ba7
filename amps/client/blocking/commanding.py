"""Sending commands and waiting for their answers: the base of the client's publishing and subscribing calls.

A command whose results are messages gets a route to a handler or to the buffer of a stream. A command with
`replace` keeps the route of the subscription it replaces.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from amps.client.blocking.runtime import ClientRuntime
from amps.client.blocking.sending import deadline_of, left_until
from amps.client.blocking.streams import MessageStream, StreamBuffer
from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.errors import DisconnectedException
from amps.client.frontend.calls import (
    SUBSCRIBING,
    needs_route,
    pause_command,
    queue_ack,
    replaced_route,
)
from amps.client.frontend.settings import ClientSettings, body_of
from amps.client.payloads.codecs import Codec
from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route, RouteKind, Ticket
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import OnFull, check_buffer
from amps.client.protocol.outbound import awaited_by
from amps.client.protocol.store_interfaces import BookmarkStore
from amps.client.uri import ConnectionUri

T = TypeVar("T")



class Commanding(ClientRuntime):
    """The calls for commands in general. The client's constructor sets the attributes below."""

    name: str
    timeout: Timeout
    auto_ack: bool
    bookmark_store: BookmarkStore | None
    _stream_settings: tuple[int, OnFull]
    _settings: ClientSettings
    _parsed_uri: ConnectionUri | None
    _resume_streams = True

    @property
    def codec(self) -> Codec:
        """The codec for bodies: the one given to the client, else the one of the message type."""
        return self._settings.codec_of(self._parsed_uri)

    def _encode(self, data: Data | object) -> bytes:
        body = body_of(data)
        if body is not None:
            return body
        if self._settings.codec is None and self._parsed_uri is None:
            # The codec depends on the connection's message type, which is unknown without a connection.
            self._check_usable()
            self._engine.check_connected(f"cannot encode {type(data).__name__}")
        return self.codec.encode(data)

    def execute(
        self, command: Command, *, control: bool = False, timeout: Timeout = DEFAULT
    ) -> MessageStream:
        """Send a command and return its results as a stream. With `control` it includes group markers and acks."""
        return self._stream(command, timeout, control=control)

    def execute_async(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Send a command whose results go to `handler`; return its id once the server has accepted it."""
        return self._handle(command, handler, timeout, resubscribe=True)

    def execute_async_no_resubscribe(
        self, command: Command, handler: Handler | None = None, *, timeout: Timeout = DEFAULT
    ) -> str:
        """Like execute_async, for subscriptions that end with the connection."""
        return self._handle(command, handler, timeout, resubscribe=False)

    def send(self, command: Command, *, timeout: Timeout = DEFAULT) -> str:
        """Send a command without waiting for an answer; return its command id. Answers go to the last chance handler.

        If the server does not read, the call waits, at most `timeout` seconds. If it times out, nothing was sent.
        """
        self._check_usable()
        deadline = self._deadline(timeout)
        self._make_room(command.command, deadline)
        command_id = self._call_engine(lambda now: self._engine.send(command, now), deadline)
        self._after_call()
        return command_id

    def _call_engine(self, call: Callable[[float], T], deadline: float | None) -> T:
        """Call the engine under its lock; if it refuses for want of a connection, wait for one if that is possible."""
        while True:
            try:
                with self._lock:
                    return call(time.monotonic())
            except DisconnectedException as refused:
                self._await_server(refused, deadline)

    def _start(
        self,
        command: Command,
        route: Route | None,
        timeout: Timeout,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> tuple[Ticket, Message | None]:
        self._check_usable()
        if awaited or awaited_by(command):
            self._check_may_wait(command.command)
        deadline = self._deadline(command.timeout if timeout is DEFAULT else timeout)
        self._make_room(command.command, deadline)

        def execute(now: float) -> Ticket:
            ticket = self._engine.execute(command, route, now, resubscribe=resubscribe, awaited=awaited)
            ticket.waiter = threading.Event()
            return ticket

        ticket = self._call_engine(execute, deadline)
        self._after_call()
        return ticket, self._await(ticket, left_until(deadline))

    def _deadline(self, timeout: Timeout) -> float | None:
        """Return the deadline of a call that begins now."""
        return deadline_of(self.timeout if timeout is DEFAULT else timeout)

    def _handle(
        self, command: Command, handler: Handler | None, timeout: Timeout, *, resubscribe: bool
    ) -> str:
        if handler is not None and not callable(handler):
            raise TypeError(f"a handler must be callable, not {type(handler).__name__}")
        route = replaced_route(self._engine, command)
        if route is not None:
            route.handler = handler or route.handler
        elif needs_route(self._engine, command):
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
        route = replaced_route(self._engine, command)
        if route is not None and isinstance(route.sink, StreamBuffer):
            stream = route.sink.stream() if route.sink.stream is not None else None
            if stream is not None:
                self._start(command, route, timeout, resubscribe=resubscribe and self._resume_streams)
                return stream
        new = route is None
        if route is None:
            route = Route(RouteKind.COMMAND, owner=self, auto_ack=self.auto_ack)
        default_depth, default_on_full = self._stream_settings
        depth = default_depth if max_depth is None else max_depth
        check_buffer(depth, on_full or default_on_full)
        buffer = StreamBuffer(
            self,
            route,
            depth,
            on_full or default_on_full,
            control or command.command not in SUBSCRIBING,
        )
        stream = MessageStream(self, command, route, buffer)
        if conflate:
            stream.conflate()
        if new and needs_route(self._engine, command):
            route.sink = buffer
            try:
                self._start(command, route, timeout, resubscribe=resubscribe and self._resume_streams)
            except BaseException:
                stream.closed = True
                raise
        else:  # the stream receives nothing
            stream.closed = True
            buffer.end()
            self._start(command, None if new else route, timeout, resubscribe=resubscribe)
        return stream

    def flush(self, ack_type: AckType = AckType.COMPLETED, *, timeout: Timeout = DEFAULT) -> None:
        """Wait until the server has acknowledged, with `ack_type`, that it processed everything sent before.

        Raises TimedOutException after `timeout` seconds, DisconnectedException if the connection is lost meanwhile.
        """
        self._start(Command("flush"), None, timeout, awaited=ack_type)

    def unsubscribe(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """End subscriptions; without arguments, all of them. Late messages go to the last chance handler."""
        self._start(Command("unsubscribe", sub_id=",".join(sub_ids) or "all"), None, timeout)

    def pause(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Pause bookmark subscriptions; messages already sent still arrive."""
        self._pause("pause", sub_ids, timeout)

    def resume(self, *sub_ids: str, timeout: Timeout = DEFAULT) -> None:
        """Resume paused subscriptions; those resumed by one call share one replay."""
        self._pause("resume", sub_ids, timeout)

    def _pause(self, option: str, sub_ids: tuple[str, ...], timeout: Timeout) -> None:
        self._check_usable()
        self._start(pause_command(self._engine, option, sub_ids), None, DEFAULT)

    # Acknowledging and discarding

    def ack(self, target: Message | str, bookmarks: str | Iterable[str] = (), options: str = "") -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic. Batched; never waits for the server."""
        self._check_usable()
        due = queue_ack(target, bookmarks, options)
        if due is None:
            return
        topic, bookmark, sub_id = due
        with self._lock:
            self._engine.ack(topic, bookmark, options, sub_id, time.monotonic())
        self._after_call()

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches."""
        with self._lock:
            self._engine.flush_acks()
        self._after_call()

    def discard(self, target: Message | str, store_seq: int = 0) -> None:
        """Mark a message, or a sub id and store_seq, as processed in the bookmark store."""
        self._check_usable()
        if self.bookmark_store is None:
            return
        if isinstance(target, Message):
            if target.store_seq and target.sub_id is not None:
                self.bookmark_store.discard(target.sub_id, target.store_seq)
        else:
            self.bookmark_store.discard(target, store_seq)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark from which the bookmark store would resume this subscription; None = nothing known."""
        self._check_usable()
        return self.bookmark_store.get_most_recent(sub_id) if self.bookmark_store is not None else None
