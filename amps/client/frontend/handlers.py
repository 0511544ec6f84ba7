"""The application's handlers and listeners, and the delivery of events to them.

An exception of an application's function is passed to the exception listener, or logged in one line if there
is none. It never ends the calling thread and never affects the next message. That is so for every exception, also
SystemExit: what follows in the same batch is noted in the bookmark store already, and would be lost. A program is ended
only where its end belongs: in a thread of the application that calls the client, or in the event loop.
"""

import logging
from collections.abc import Callable
from typing import Any

from amps.client.enums import ConnectionState
from amps.client.errors import AMPSException, StreamException, UsageException
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
    """The handlers and listeners of one client, and the calls of them. None: there is no handler."""

    def __init__(self, name: str, logger: logging.Logger) -> None:
        self.name = name
        self.logger = logger
        self.state = ConnectionState.DISCONNECTED
        """The last connection state of which the listeners were told."""
        self.errors = 0
        """The number of exceptions that handlers and listeners have raised."""
        self.ends_program: Callable[[BaseException], bool] = lambda error: False
        """Called with a SystemExit or KeyboardInterrupt of a function; may raise it. False: it is reported."""
        self.exception_listener: Callable[[BaseException], object] | None = None
        self.last_chance_handler: Handler | None = None
        self.duplicate_handler: Handler | None = None
        self.global_handlers: dict[str, Handler] = {}
        self.failed_write_handler: Callable[[Message, str], object] | None = None
        self.transport_filter: Callable[[bytes, bool], object] | None = None
        self.receive_started: Callable[[], object] | None = None
        self.state_listeners: list[Callable[[ConnectionState], object]] = []

    def set_global(self, command: str, fn: Handler | None) -> None:
        """Set or remove the handler for all messages of one type."""
        if fn is None:
            self.global_handlers.pop(command, None)
        else:
            self.global_handlers[command] = fn

    def remove_state_listener(self, fn: Callable[[ConnectionState], object]) -> None:
        """Remove a connection state listener, if it is there."""
        if fn in self.state_listeners:
            self.state_listeners.remove(fn)

    def run_event(self, event: Event) -> None:
        """Run the application's code for an event."""
        match event:
            case Deliver(route, messages):
                self.deliver(route, messages)
            case State(state):
                self.state = state
                for listener in list(self.state_listeners):
                    self.call(listener, state)
            case Global(message):
                handler = self.global_handlers.get(message.command)
                if handler is not None:
                    self.call(handler, message)
            case LastChance(message):
                self.last_chance(message)
            case Duplicate(message):
                if self.duplicate_handler is not None:
                    self.call(self.duplicate_handler, message)
            case FailedWrite(message, reason, ack):
                if self.failed_write_handler is not None:
                    self.call(self.failed_write_handler, message, reason)
                else:
                    self.logger.warning(
                        "client %s: a %s was refused: %s (sequence %s)",
                        self.name, message.command, reason or "no reason given", ack.sequence,
                    )  # fmt: skip
                    self.last_chance(ack)
            case _:
                raise AssertionError(f"unhandled event {event!r}")

    def deliver(self, route: Route, messages: list[Message]) -> None:
        """Call the handler of a route, and acknowledge what it has handled if that is automatic."""
        handler = route.handler
        if handler is None:
            return
        auto_ack = route.auto_ack
        for message in messages:
            if route.cancelled:
                self.last_chance(message)
                continue
            try:
                handler(message)
            except BaseException as error:
                self.failed(handler, error)
                if auto_ack:
                    self.acknowledge(message, "cancel")
            else:
                if auto_ack:
                    self.acknowledge(message)

    def acknowledge(self, message: Message, options: str = "") -> None:
        """Acknowledge a message that a handler has processed. If the client was closed meanwhile, it is redelivered."""
        try:
            message.ack(options)
        except UsageException:
            pass
        except BaseException as error:
            self.failed(message.ack, error)

    def last_chance(self, message: Message) -> None:
        """Give a message to the last chance handler."""
        if self.last_chance_handler is not None:
            self.call(self.last_chance_handler, message)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function of the application; an exception is reported."""
        try:
            function(*args)
        except BaseException as error:
            self.failed(function, error)

    def connection_lost(self, error: AMPSException, server: str, *, handled: bool, watched: bool) -> None:
        """Report the loss of a connection that the application did not request.

        The listener gets a loss by corrupt data, and every loss that nobody handles. Without a listener, a loss is
        logged if subscriptions with handlers have ended (`watched`): calls and streams get the error.
        """
        corrupt = isinstance(error, StreamException)
        if self.exception_listener is None:
            if watched and not handled:
                self.logger.warning("client %s: lost the connection to %s: %s", self.name, server, error)
        elif corrupt or not handled:
            self.call(self.exception_listener, error)

    def warn_of_unsent(self, count: int) -> None:
        """Warn that commands which were accepted, and wait for the end of a recovery, are dropped."""
        if count:
            self.logger.warning(
                "client %s: the end of reconnecting drops %d commands that were accepted, but not sent",
                self.name, count,
            )  # fmt: skip

    def failed(self, function: Callable[..., object], error: BaseException) -> None:
        """Report an exception of a function of the application."""
        self.errors += 1
        if isinstance(error, SystemExit | KeyboardInterrupt) and self.ends_program(error):
            return
        listener = self.exception_listener
        if listener is None:
            self.logger.warning("client %s: %r raised", self.name, function, exc_info=error)
            return
        try:
            listener(error)
        except BaseException as second:
            self.logger.exception("client %s: the exception listener raised", self.name)
            if isinstance(second, SystemExit | KeyboardInterrupt):
                self.ends_program(second)
