"""The application's handlers and listeners, and the delivery of events to them.

An exception of an application's function is passed to the exception listener, or logged in one line if there
is none. It never ends the calling thread and never affects the next message.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from amps.client.enums import ConnectionState
from amps.client.errors import UsageException
from amps.client.protocol.engine_types import (
    Deliver,
    Duplicate,
    Event,
    FailedWrite,
    Global,
    LastChance,
    Route,
    State,
)
from amps.client.protocol.message import Handler, Message


class EventHandlers:
    """Keeps the handlers and runs them for events."""

    def __init__(self, name: str, logger: logging.Logger) -> None:
        self._name = name
        self._logger = logger
        self._state = ConnectionState.DISCONNECTED
        self._handler_errors = 0
        self._exception_listener: Callable[[BaseException], object] | None = None
        self._last_chance_handler: Handler | None = None
        self._duplicate_handler: Handler | None = None
        self._global_handlers: dict[str, Handler] = {}
        self._failed_write_handler: Callable[[Message, str], object] | None = None
        self._transport_filter: Callable[[bytes, bool], object] | None = None
        self._receive_started: Callable[[], object] | None = None
        self._state_listeners: list[Callable[[ConnectionState], object]] = []

    def _run_event(self, event: Event) -> None:
        """Run the application's code for an event."""
        match event:
            case Deliver(route, messages):
                self._deliver(route, messages)
            case State(state):
                self._state = state
                for listener in list(self._state_listeners):
                    self._call(listener, state)
            case Global(message):
                handler = self._global_handlers.get(message.command)
                if handler is not None:
                    self._call(handler, message)
            case LastChance(message):
                self._last_chance(message)
            case Duplicate(message):
                if self._duplicate_handler is not None:
                    self._call(self._duplicate_handler, message)
            case FailedWrite(message, reason, ack):
                if self._failed_write_handler is not None:
                    self._call(self._failed_write_handler, message, reason)
                else:
                    self._logger.warning(
                        "client %s: a %s was refused: %s (sequence %s)",
                        self._name, message.command, reason or "no reason given", ack.sequence,
                    )  # fmt: skip
                    self._last_chance(ack)
            case _:
                raise AssertionError(f"unhandled event {event!r}")

    def _deliver(self, route: Route, messages: list[Message]) -> None:
        handler = route.handler
        if handler is None:
            return
        auto_ack = route.auto_ack
        for message in messages:
            if route.cancelled:
                self._last_chance(message)
                continue
            try:
                handler(message)
            except Exception as error:
                self._handler_failed(handler, error)
                if auto_ack:
                    self._acknowledge(message, "cancel")
            else:
                if auto_ack:
                    self._acknowledge(message)

    def _acknowledge(self, message: Message, options: str = "") -> None:
        """Acknowledge a message that a handler has processed. If the client was closed meanwhile, it is redelivered."""
        with contextlib.suppress(UsageException):
            message.ack(options)

    def _last_chance(self, message: Message) -> None:
        if self._last_chance_handler is not None:
            self._call(self._last_chance_handler, message)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            self._handler_failed(function, error)

    def _handler_failed(self, function: Callable[..., object], error: BaseException) -> None:
        self._handler_errors += 1
        listener = self._exception_listener
        if listener is None:
            self._logger.warning("client %s: %r raised", self._name, function, exc_info=error)
            return
        try:
            listener(error)
        except Exception:
            self._logger.exception("client %s: the exception listener raised", self._name)

    # Handlers: None removes the handler

    def set_exception_listener(self, fn: Callable[[BaseException], object] | None) -> None:
        """Set the listener for exceptions of handlers and other listeners; without one they are logged."""
        self._exception_listener = fn

    def set_transport_filter(self, fn: Callable[[bytes, bool], object] | None) -> None:
        """Set `fn(data, outgoing)`, called with all bytes, before encryption and after decryption."""
        self._transport_filter = fn

    def set_last_chance_handler(self, fn: Handler | None) -> None:
        """Set the handler for messages that have no route."""
        self._last_chance_handler = fn

    def set_duplicate_handler(self, fn: Handler | None) -> None:
        """Set the handler for messages that the bookmark store has already seen."""
        self._duplicate_handler = fn

    def set_failed_write_handler(self, fn: Callable[[Message, str], object] | None) -> None:
        """Set `fn(message, reason)` for publishes and deletes that the server refused."""
        self._failed_write_handler = fn

    def set_receive_started_callback(self, fn: Callable[[], object] | None) -> None:
        """Set a function that each new receive thread calls first."""
        self._receive_started = fn

    def add_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Add a listener that is called with each connection state; it must not wait for the server."""
        self._state_listeners.append(fn)

    def remove_connection_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Remove a connection state listener."""
        if fn in self._state_listeners:
            self._state_listeners.remove(fn)

    def clear_connection_state_listeners(self) -> None:
        """Remove all connection state listeners."""
        self._state_listeners.clear()
