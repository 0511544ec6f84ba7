"""The delivery of messages to handlers; for coroutine functions, by a queue and tasks for each subscription.

With one task, a handler finishes a message before it gets the next one. With several (`concurrency`), messages are
begun in order and may finish in any. A message that auto-ack acknowledges is acknowledged after its handler has
returned, and given back (`cancel`) if it raised or was cancelled.
"""

import asyncio
import inspect
from types import CoroutineType
from typing import Any

from amps.client.aio.connection import seconds_left
from amps.client.aio.streams import MessageQueue
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Handler, Message

CANCEL_S = 1.0
"""How long the end of a client waits for handlers that it has cancelled."""


def is_coroutine_handler(handler: object) -> bool:
    """Whether calling the handler returns a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def cancels_task(error: BaseException) -> bool:
    """Whether an exception is the cancellation of the running task, and not of something that it awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def deliver(handlers: EventHandlers, route: Route, messages: list[Message]) -> None:
    """Call the plain function that handles the messages of a route.

    A function that returns a coroutine (a lambda around one, for example) has handled nothing: that is its error.
    """
    handler = route.handler
    if handler is None:
        return
    auto_ack = route.auto_ack
    for message in messages:
        if route.cancelled:
            handlers.last_chance(message)
            continue
        try:
            result = handler(message)
            if result is not None and inspect.iscoroutine(result):
                result.close()
                raise TypeError(
                    f"the handler {handler!r} returned a coroutine, which nothing awaits: pass the coroutine"
                    " function itself, functools.partial of it, or an `async def` around it"
                )
        except BaseException as error:
            handlers.failed(handler, error)
            if auto_ack:
                handlers.acknowledge(message, "cancel")
        else:
            if auto_ack:
                handlers.acknowledge(message)


class HandlerTasks:
    """The tasks that run one subscription's coroutine handler."""

    def __init__(
        self,
        handlers: EventHandlers,
        route: Route,
        queue: MessageQueue,
        handler: Handler,
        concurrency: int,
    ) -> None:
        self.queue = queue
        self.handler = handler
        self._handlers = handlers
        self._route = route
        self._concurrency = concurrency
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the tasks; called when the first message has arrived."""
        while len(self.tasks) < self._concurrency:
            task = asyncio.get_running_loop().create_task(self._work(), name=f"amps-handler:{self._route.id}")
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _work(self) -> None:
        queue = self.queue
        while True:
            try:
                message = queue.take()
            except Exception:
                return  # the queue has ended; its error is reported by the state of the client
            if message is None:
                await queue.wait()
            else:
                await self._handle(message)

    async def _handle(self, message: Message) -> None:
        result: Any
        try:
            result = self.handler(message)
            if type(result) is CoroutineType or inspect.isawaitable(result):
                await result
        except BaseException as error:
            if self._route.auto_ack:
                self._handlers.acknowledge(message, "cancel")
            if cancels_task(error):
                raise
            self._handlers.failed(self.handler, error)
        else:
            if self._route.auto_ack:
                self._handlers.acknowledge(message)


class AllHandlerTasks:
    """The handler tasks of one client, which end with it."""

    def __init__(self, handlers: EventHandlers) -> None:
        self._handlers = handlers
        self._all: set[HandlerTasks] = set()

    def add(self, tasks: HandlerTasks) -> None:
        """Note the tasks of a handler."""
        self._all -= {known for known in self._all if known.queue.ended and not known.tasks}
        self._all.add(tasks)

    def discard(self, tasks: HandlerTasks) -> None:
        """Forget tasks whose subscription has ended, unless one of them runs: the client's end waits for it."""
        if not tasks.tasks:
            self._all.discard(tasks)

    def clear(self) -> None:
        """Forget all: their event loop is not used any more."""
        self._all.clear()

    async def finish(self, deadline: float | None) -> None:
        """Give no more messages to coroutine handlers. Let those that run finish, and cancel them at the deadline."""
        tasks: set[asyncio.Task[None]] = set()
        for handlers in self._all:
            handlers.queue.clear()
            handlers.queue.end()
            tasks |= handlers.tasks
        current = asyncio.current_task()
        tasks = {task for task in tasks if task is not current}
        if not tasks:
            return
        try:
            _, running = await asyncio.wait(tasks, timeout=seconds_left(deadline))
        finally:
            for task in tasks:
                task.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=CANCEL_S)
        if running:
            self._handlers.logger.warning(
                "client %s: %d handlers go on although they were cancelled", self._handlers.name, len(running)
            )
