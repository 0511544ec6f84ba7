"""Sending commands and waiting for their answers.

A command whose results are messages gets a route to a handler or to the buffer of a stream. A command with
`replace` keeps the route of the subscription it replaces. A call that the engine refuses because there is no
connection, or because the publish store is full, waits and is repeated, if the client allows that.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from amps.client.blocking.changes import Signal
from amps.client.blocking.deadlines import left_until
from amps.client.blocking.runtime import Runtime
from amps.client.blocking.streams import MessageStream, StreamBuffer
from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.errors import DisconnectedException, StoreFullException, TimedOutException
from amps.client.frontend.calls import (
    SUBSCRIBING,
    check_handler,
    needs_route,
    no_room,
    queue_ack,
    replaced_route,
)
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.command import Command, check_command
from amps.client.protocol.engine_types import Route, RouteKind, Ticket
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import CallSettings, check_buffer
from amps.client.protocol.outbound import awaited_by

T = TypeVar("T")


class Commands:
    """Sends commands through a runtime. `owner`, in its calls, is the client to which messages belong."""

    def __init__(self, runtime: Runtime, settings: ClientSettings) -> None:
        self.resume_streams = True
        """Whether streams go on after a reconnect."""
        self._runtime = runtime
        self._wire = runtime.wire
        self._waits = runtime.waits
        self._sender = runtime.sender
        self._engine = runtime.wire.engine
        self._settings = settings

    def encode(self, data: Data | object) -> bytes:
        """Return a body as bytes."""
        return self._settings.encode(data, self._wire.uri, self._check_codec)

    def _check_codec(self, what: str) -> None:
        self._wire.check_usable()
        self._engine.check_connected(what)

    # Calling the engine

    def call_engine(self, call: Callable[[float], T], what: str, deadline: float | None) -> T:
        """Call the engine under its lock; repeat a call that it refuses, if waiting for a connection or for room in the
        publish store is allowed. Raises the refusal, or TimedOutException.
        """
        while True:
            seen = self._waits.discards
            try:
                with self._wire.lock:
                    return call(time.monotonic())
            except StoreFullException as full:
                self._await_store(full, what, seen, deadline)
            except DisconnectedException as refused:
                self._wire.await_server(refused, deadline)

    def _await_store(self, full: StoreFullException, what: str, seen: int, deadline: float | None) -> None:
        """Wait until the full publish store has discarded messages, or the connection is lost."""
        store, waits = self._settings.publish_store, self._waits
        if store is None or store.on_full != "wait" or self._wire.must_not_wait():
            raise full
        self._sender.send()
        token = object()
        try:
            waits.begin(token)  # the acks may follow messages that fill a stream's buffer
            if not waits.until_discarded(lambda: waits.discards != seen, deadline):
                raise no_room(what, store) from full
        finally:
            waits.waiting.discard(token)

    def send(self, command: Command, timeout: Timeout) -> str:
        """Send a command without waiting for an answer; return its command id."""
        check_command(command)
        self._wire.check_usable()
        deadline = self._settings.deadline(timeout)
        self._sender.make_room(command.command, deadline)
        command_id = self.call_engine(lambda now: self._engine.send(command, now), command.command, deadline)
        self._sender.after_call()
        return command_id

    def start(
        self,
        command: Command,
        route: Route | None,
        timeout: Timeout,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> tuple[Ticket, Message | None]:
        """Send a command and wait for its answer; return its ticket and the acknowledgement."""
        self._wire.check_usable()
        if awaited or awaited_by(command):
            self._wire.check_may_wait(command.command)
        deadline = self._settings.deadline(command.timeout if timeout is DEFAULT else timeout)
        self._sender.make_room(command.command, deadline)

        def execute(now: float) -> Ticket:
            ticket = self._engine.execute(command, route, now, resubscribe=resubscribe, awaited=awaited)
            ticket.waiter = Signal()
            return ticket

        ticket = self.call_engine(execute, command.command, deadline)
        self._sender.after_call()
        return ticket, self.answer(ticket, left_until(deadline))

    def answer(self, ticket: Ticket, timeout: Timeout) -> Message | None:
        """Wait until a ticket is settled; return its ack, or raise the exception it failed with."""
        if not ticket.awaited:
            return None
        waiter: Signal = ticket.waiter
        token = object()
        try:
            self._waits.begin(token)
            settled = waiter.wait(timeout)
        except BaseException:
            self.abandon(ticket)
            raise
        finally:
            self._waits.waiting.discard(token)
        if not settled:
            self.abandon(ticket)
        if ticket.error is not None:
            raise ticket.error
        if not settled and ticket.ack is None and ticket.challenge is None:
            raise TimedOutException(f"no answer to {ticket.command} in time", command_id=ticket.command_id)
        return ticket.ack

    def abandon(self, ticket: Ticket) -> None:
        """Give up a command: the subscription or query that it has entered, or may enter, is ended."""
        with self._wire.lock:
            self._engine.abandon(ticket, time.monotonic())
        self._sender.after_call()

    # Routes for results

    def handle(
        self,
        owner: Any,
        command: Command,
        handler: Handler | None,
        timeout: Timeout,
        *,
        resubscribe: bool,
        auto_ack: bool | None = None,
        concurrency: int = 1,
    ) -> str:
        """Send a command whose messages go to a handler; return the id of the subscription, query or command."""
        check_command(command)
        check_handler(handler)
        route = replaced_route(self._engine, command)
        if route is not None:
            route.handler = handler or route.handler
        elif needs_route(self._engine, command):
            auto_ack = self._settings.auto_ack if auto_ack is None else auto_ack
            route = Route(RouteKind.COMMAND, owner=owner, handler=handler, auto_ack=auto_ack)
            if concurrency > 1:
                self._runtime.consumers.add(route, concurrency, self._settings.max_depth)
        ticket, _ = self.start(command, route, timeout, resubscribe=resubscribe)
        if route is None:
            return ticket.command_id
        return ticket.sub_id or ticket.query_id or ticket.command_id

    def stream(self, owner: Any, command: Command, settings: CallSettings) -> MessageStream:
        """Send a command whose messages are read from a stream; return the stream."""
        check_command(command)
        resumes = settings.resubscribe and self.resume_streams
        route = replaced_route(self._engine, command)
        if route is not None and isinstance(route.sink, StreamBuffer):
            stream = route.sink.stream() if route.sink.stream is not None else None
            if stream is not None:
                self.start(command, route, settings.timeout, resubscribe=resumes)
                return stream
        new = route is None
        if route is None:
            route = Route(RouteKind.COMMAND, owner=owner, auto_ack=self._settings.auto_ack)
        depth = self._settings.max_depth if settings.max_depth is None else settings.max_depth
        on_full = settings.on_full or self._settings.on_full
        check_buffer(depth, on_full)
        control = settings.control or command.command not in SUBSCRIBING
        buffer = StreamBuffer(self._runtime, route, depth, on_full, control)
        stream = MessageStream(self._runtime, command, route, buffer)
        if settings.conflate:
            stream.conflate()
        if new and needs_route(self._engine, command):
            route.sink = buffer
            try:
                self.start(command, route, settings.timeout, resubscribe=resumes)
            except BaseException:
                stream.closed = True
                raise
        else:  # the stream receives nothing
            stream.closed = True
            buffer.end()
            self.start(command, None if new else route, settings.timeout, resubscribe=settings.resubscribe)
        return stream

    # Queue acknowledgements

    def ack(self, target: Message | str, bookmarks: Any, options: str) -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic."""
        self._wire.check_usable()
        due = queue_ack(target, bookmarks, options)
        if due is None:
            return
        topic, bookmark, sub_id = due
        with self._wire.lock:
            self._engine.ack(topic, bookmark, options, sub_id, time.monotonic())
        self._sender.after_call()

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches."""
        with self._wire.lock:
            self._engine.flush_acks()
        self._sender.after_call()
