"""Handlers of applications, called with the messages of this package."""

from collections.abc import Callable
from typing import Any

from amps.client import Message as _Message
from amps.compat.messages import Message

Handler = Callable[[Message], object]


def wrapped(handler: Handler) -> Callable[[_Message], object]:
    """Return a handler for amps.client that passes on messages of this package."""
    return lambda message: handler(Message(message))


def wrapped_or_none(handler: Handler | None) -> Callable[[_Message], object] | None:
    """Like `wrapped`; None removes a handler."""
    return None if handler is None else wrapped(handler)


def wrapped_failed_write(handler: Callable[[Message, str], object] | None) -> Any:
    """Like `wrapped_or_none`, for the failed write handler."""
    if handler is None:
        return None
    return lambda message, reason: handler(Message(message), reason)


class CMessageHandler:
    """Wraps a native handler. Not available: its binary interface is that of another library."""

    def __init__(self, function: Any, userdata: Any = None) -> None:
        raise NotImplementedError("native message handlers are not available: pass a Python callable")
