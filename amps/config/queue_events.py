"""The queue events of actions: pure functions of a configuration, so that core and services agree (queues.md §15).

A queue event is the expiry, or the acknowledgement, of messages of one queue. It is identified by its module, the
message type and the queue's name: other changes of its actions do not affect its position in the log.
"""

from typing import NamedTuple

from amps.config.action_modules import QUEUE_EVENTS, REASONS
from amps.config.model import ServerConfig


class QueueEvent(NamedTuple):
    """One event of a queue with actions; `expired` is False for acknowledged messages."""

    expired: bool
    message_type: str
    queue: str

    @property
    def kind(self) -> str:
        """The name of the event's module in the action engine."""
        return "sow-expire-message" if self.expired else "sow-delete-message"

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the event in files."""
        return self.kind, self.message_type, self.queue

    @property
    def which(self) -> str:
        """The queue as a text; it is unambiguous, because a message type has no blank."""
        return f"{self.message_type} {self.queue}"


def queue_events(config: ServerConfig) -> tuple[QueueEvent, ...]:
    """Return the events of queues that have actions, in the order of the file, each once."""
    found: dict[QueueEvent, None] = {}
    for action in config.actions:
        for event in action.events:
            if event.module in QUEUE_EVENTS:
                (queue,), (message_type,) = event.options["Topic"], event.options["MessageType"]
                found[QueueEvent(event.module == QUEUE_EVENTS[0], message_type, queue)] = None
    return tuple(found)


def reasons_of(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons for an expiry from the bits in a record (`_core/journal/queue_records.pxd`)."""
    return tuple(reason for place, reason in enumerate(REASONS) if bits >> place & 1)
