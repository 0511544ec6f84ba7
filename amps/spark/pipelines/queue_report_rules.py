"""The entry rules of queues, from `<instance>.queues.ack`: their underlying topics, and their start in the log.

The log has records of the messages that left a queue, but none of those that entered it: a message enters by being
published on an underlying topic. The server writes the rules to this file, so they are read there. The file also has
the log position where a queue begins. A message before it that is in no record of the queue has never been in it.
"""

from dataclasses import dataclass
from pathlib import Path

from amps.journal.names import queues_ack_path
from amps.journal.queues_ack import QueuesAckDamaged, QueueStart, read_queues_ack
from amps.topic_expressions import BadTopicExpression, topic_predicate


@dataclass(frozen=True, slots=True)
class EntryRule:
    """The rule that determines which messages enter a queue."""

    queue: str
    message_type: str
    topic: str
    is_expression: bool
    filter: str | None
    position: int
    """Start of the queue: messages from this log position on that are in no record of the queue are still in it."""

    def takes(self, topic: str, message_type: str) -> bool:
        """Whether messages of a topic enter the queue, if they match its filter."""
        if message_type != self.message_type:
            return False
        matches = topic_predicate(self.topic, True) if self.is_expression else None
        return topic == self.topic if matches is None else matches(topic)


def read_rules(directory: Path, instance: str) -> tuple[tuple[EntryRule, ...], str | None]:
    """Return the rules of all queues from the file, and a message if they are not available, else None."""
    path = queues_ack_path(directory, instance)
    try:
        _, starts = read_queues_ack(path)
    except FileNotFoundError:
        return (), f"{path.name} does not exist, so the entry rules of queues are not known"
    except (OSError, QueuesAckDamaged) as problem:
        return (), f"the entry rules of queues are not known: {problem}"
    rules = (_rule(start) for start in starts)
    return tuple(rule for rule in rules if rule is not None), None


def _rule(start: QueueStart) -> EntryRule | None:
    """Return the rule of a queue; None if it is not valid: the queue then has no known rule."""
    match start.definition:
        case (str(topic), bool(is_expression), str() | None as content_filter, *_):
            rule = EntryRule(
                start.name, start.message_type, topic, is_expression, content_filter, start.position
            )
        case _:
            return None
    try:
        rule.takes("", start.message_type)
    except BadTopicExpression:
        return None
    return rule
