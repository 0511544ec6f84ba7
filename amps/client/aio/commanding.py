"""Sending commands and waiting for their answers.

A command whose results are messages gets a route to a handler or to the queue of a stream. A command with `replace`
keeps the route of the subscription it replaces. A call that the engine refuses because there is no connection, or
because the publish store is full, waits and is repeated, if the client allows that. When a waiting call is cancelled,
its command is abandoned.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from amps.client.aio.handlers import HandlerTasks, is_coroutine_handler
from amps.client.aio.link import Link
from amps.client.aio.streams import AsyncMessageStream, MessageQueue
from amps.client.aio.waits import release
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
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.command import Command, check_command
from amps.client.protocol.engine_types import Route, RouteKind, Ticket
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import CallSettings, check_buffer

T = TypeVar("T")


class Commands:
    """Sends commands through a link. `owner`, in its calls, is the client to which messages belong."""

    def __init__(self, link: Link, handlers: EventHandlers, settings: ClientSettings) -> None:
        self.resume_streams = True
        """Whether streams go on after a reconnect."""
        self._link = link
        self._engine = link.engine
        self._handlers = handlers
        self._settings = settings

    def encode(self, data: Data | object) -> bytes:
        """Return a body as bytes."""
        return self._settings.encode(data, self._link.uri, self._engine.check_connected)

    # Calling the engine

    async def call_engine(self, call: Callable[[float], T], what: str, deadline: float | None) -> T:
        """Call the engine; repeat a call that it refuses, if waiting for a connection or for room in the publish store
        is allowed. Raises the refusal, or TimedOutException.
        """
        while True:
            try:
                return call(time.monotonic())
            except StoreFullException as full:
                await self._await_store(full, what, deadline)
            except DisconnectedException as refused:
                await self._link.policy.await_server(refused, deadline)

    async def _await_store(self, full: StoreFullException, what: str, deadline: float | None) -> None:
        """Wait until the full publish store has discarded messages, or the connection is lost."""
        store, link = self._settings.publish_store, self._link
        if store is None or store.on_full != "wait":
            raise full
        if not self._engine.connected and not self._engine.recovers:
            raise full
        link.flush()
        if not await link.waits.wait_in(link.waits.discarded, deadline):
            raise no_room(what, store) from full
        link.check_usable()

    def send(self, command: Command) -> str:
        """Send a command without waiting for an answer; return its command id."""
        check_command(command)
        self._link.check_usable()
        if self._link.outbox.blocked:
            raise BufferError("send: the server does not read what was sent before")
        command_id = self._engine.send(command, time.monotonic())
        self._link.after_call()
        return command_id

    async def start(
        self,
        command: Command,
        route: Route | None,
        timeout: Timeout,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> tuple[Ticket, Message | None]:
        """Send a command and wait for its answer; return its ticket and the acknowledgement."""
        self._link.check_usable()
        deadline = self._settings.deadline(command.timeout if timeout is DEFAULT else timeout)
        await self._link.make_room(command.command, deadline)
        ticket = await self.call_engine(
            lambda now: self._engine.execute(command, route, now, resubscribe=resubscribe, awaited=awaited),
            command.command,
            deadline,
        )
        return ticket, await self.answer(ticket, deadline)

    async def answer(self, ticket: Ticket, deadline: float | None) -> Message | None:
        """Wait until a ticket is settled; return its ack, or raise the exception it failed with."""
        link = self._link
        assert link.loop is not None
        if not ticket.awaited:
            link.after_call()
            return None
        waiter: asyncio.Future[None] = link.loop.create_future()
        ticket.waiter = waiter
        link.waits.count += 1
        timer = None
        try:
            link.after_call()
            if deadline is not None and not waiter.done():
                timer = link.loop.call_later(max(0.0, deadline - time.monotonic()), release, [waiter])
            await waiter
        except BaseException:
            self._abandon(ticket)
            raise
        finally:
            link.waits.count -= 1
            if timer is not None:
                timer.cancel()
        if not ticket.done and ticket.challenge is None:
            self._abandon(ticket)
            raise TimedOutException(f"no answer to {ticket.command} in time", command_id=ticket.command_id)
        if ticket.error is not None:
            raise ticket.error
        return ticket.ack

    def _abandon(self, ticket: Ticket) -> None:
        """Give up a command: the subscription or query that it has entered, or may enter, is ended."""
        if not ticket.done:
            self._engine.abandon(ticket, time.monotonic())
        elif ticket.route is not None and not ticket.replaces:
            self._engine.cancel(ticket.route)
        self._link.after_call()

    # Routes for results

    async def handle(
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
            if handler is not None:
                self._set_handler(route, handler, concurrency)
        elif needs_route(self._engine, command):
            auto_ack = self._settings.auto_ack if auto_ack is None else auto_ack
            route = Route(RouteKind.COMMAND, owner=owner, auto_ack=auto_ack)
            self._set_handler(route, handler, concurrency)
        ticket, _ = await self.start(command, route, timeout, resubscribe=resubscribe)
        if route is None:
            return ticket.command_id
        return ticket.sub_id or ticket.query_id or ticket.command_id

    def _set_handler(self, route: Route, handler: Handler | None, concurrency: int) -> None:
        if isinstance(route.sink, HandlerTasks) and handler is not None:
            route.sink.handler = handler  # the tasks run plain functions, too
        elif handler is None or (concurrency == 1 and not is_coroutine_handler(handler)):
            route.handler = handler
        else:
            queue = MessageQueue(self._link, route, self._settings.max_depth, "pause")
            route.sink = HandlerTasks(self._handlers, route, queue, handler, concurrency)
            self._link.handler_tasks.add(route.sink)

    async def stream(self, owner: Any, command: Command, settings: CallSettings) -> AsyncMessageStream:
        """Send a command whose messages are read from a stream; return the stream."""
        self._link.check_usable()
        check_command(command)
        resumes = settings.resubscribe and self.resume_streams
        route = replaced_route(self._engine, command)
        if route is not None and isinstance(route.sink, MessageQueue) and route.sink.stream is not None:
            stream = route.sink.stream()
            if stream is not None:
                await self.start(command, route, settings.timeout, resubscribe=resumes)
                return stream
        new = route is None
        if route is None:
            route = Route(RouteKind.COMMAND, owner=owner, auto_ack=self._settings.auto_ack)
        depth = self._settings.max_depth if settings.max_depth is None else settings.max_depth
        on_full = settings.on_full or self._settings.on_full
        check_buffer(depth, on_full)
        queue = MessageQueue(self._link, route, depth, on_full)
        queue.control = settings.control or command.command not in SUBSCRIBING
        stream = AsyncMessageStream(self._link, command, route, queue)
        if settings.conflate:
            stream.conflate()
        if new and needs_route(self._engine, command):
            route.sink = queue
            try:
                await self.start(command, route, settings.timeout, resubscribe=resumes)
            except BaseException:
                stream.closed = True
                raise
        else:  # the stream receives nothing
            stream.closed = True
            queue.end()
            await self.start(
                command, None if new else route, settings.timeout, resubscribe=settings.resubscribe
            )
        return stream

    # Queue acknowledgements

    def ack(self, target: Message | str, bookmarks: Any, options: str) -> None:
        """Acknowledge a queue message, or bookmarks of a queue topic."""
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
