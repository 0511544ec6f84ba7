"""What actions watch in queues: pure functions of a configuration, so that core and services agree (queues.md §15).

A queue event is that messages of one queue expire, or that they are acknowledged. It is known by its module, the
message type and the queue's name: whatever else of its actions changes, it goes on where it was.
"""

from typing import NamedTuple

from amps.config.action_modules import QUEUE_EVENTS, REASONS
from amps.config.model import ServerConfig


class QueueEvent(NamedTuple):
    """One event of a queue that has actions; `expired`: else it is about messages that were acknowledged."""

    expired: bool
    message_type: str
    queue: str

    @property
    def kind(self) -> str:
        """The module, as the engine of actions calls it."""
        return "sow-expire-message" if self.expired else "sow-delete-message"

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is called in files."""
        return self.kind, self.message_type, self.queue

    @property
    def which(self) -> str:
        """The queue, in a text: a message type has no blank."""
        return f"{self.message_type} {self.queue}"


def queue_events(config: ServerConfig) -> tuple[QueueEvent, ...]:
    """The events of queues that have actions, in the order of the file, each once."""
    found: dict[QueueEvent, None] = {}
    for action in config.actions:
        for event in action.events:
            if event.module in QUEUE_EVENTS:
                (queue,), (message_type,) = event.options["Topic"], event.options["MessageType"]
                found[QueueEvent(event.module == QUEUE_EVENTS[0], message_type, queue)] = None
    return tuple(found)


def reasons_of(bits: int) -> tuple[str, ...]:
    """The names of the reasons for an expiry, of which a record has bits (`_core/journal/queue_records.pxd`)."""
    return tuple(reason for place, reason in enumerate(REASONS) if bits >> place & 1)
