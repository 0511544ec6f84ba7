"""The delivery of messages to handlers; for coroutine functions, by a queue and tasks for each subscription.

With one task, a handler finishes a message before it gets the next one. With several (`concurrency`), messages are
begun in order and may finish in any. A message that auto-ack acknowledges is acknowledged after its handler has
returned, and given back (`cancel`) if it raised or was cancelled.
"""

import asyncio
import inspect
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Protocol

from amps.client.aio.streams import MessageQueue
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Handler, Message


def is_coroutine_handler(handler: object) -> bool:
    """Whether calling the handler returns a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


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
            handlers._last_chance(message)
            continue
        try:
            result = handler(message)
            if result is not None and inspect.iscoroutine(result):
                result.close()
                raise TypeError(
                    f"the handler {handler!r} returned a coroutine, which nothing awaits: pass the coroutine"
                    " function itself, functools.partial of it, or an `async def` around it"
                )
        except Exception as error:
            handlers._handler_failed(handler, error)
            if auto_ack:
                handlers._acknowledge(message, "cancel")
        else:
            if auto_ack:
                handlers._acknowledge(message)


class HandlerOwner(Protocol):
    """The interface of the client that handler tasks use."""

    def handler_failed(self, handler: Callable[..., object], error: BaseException) -> None:
        """Report an exception of a handler."""

    def acknowledge(self, message: Message, options: str = "") -> None:
        """Acknowledge a message; no effect if the client is closed."""


class HandlerTasks:
    """The tasks that run one subscription's coroutine handler."""

    def __init__(
        self, owner: HandlerOwner, route: Route, queue: MessageQueue, handler: Handler, concurrency: int
    ) -> None:
        self.queue = queue
        self.handler = handler
        self._owner = owner
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
        except Exception as error:
            self._owner.handler_failed(self.handler, error)
            if self._route.auto_ack:
                self._owner.acknowledge(message, "cancel")
        except BaseException as error:
            if self._route.auto_ack:
                self._owner.acknowledge(message, "cancel")
            task = asyncio.current_task()
            if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
                raise
            # Something that the handler awaited was cancelled, not this task: the next message is handled.
            self._owner.handler_failed(self.handler, error)
        else:
            if self._route.auto_ack:
                self._owner.acknowledge(message)
