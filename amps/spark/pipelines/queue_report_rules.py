"""What is known of queues besides the log: which topics they take, and from where on (`<instance>.queues.ack`).

The log tells what has left a queue, never what has entered one: a message enters by being published on a topic that the
queue takes. The server writes down by which rules, so that is where they are read. What the file says of the place
where a queue begins is used, too: a message before it that is in no record of the queue has never been in it.
"""

from dataclasses import dataclass
from pathlib import Path

from amps.journal.names import queues_ack_path
from amps.journal.queues_ack import QueuesAckDamaged, QueueStart, read_queues_ack
from amps.topic_expressions import BadTopicExpression, topic_predicate


@dataclass(frozen=True, slots=True)
class EntryRule:
    """Which messages a queue takes."""

    queue: str
    message_type: str
    topic: str
    is_expression: bool
    filter: str | None
    position: int
    """Log position from which on what is in no record of the queue is still in it."""

    def takes(self, topic: str, message_type: str) -> bool:
        """Whether messages of a topic enter it, if its filter lets them."""
        if message_type != self.message_type:
            return False
        matches = topic_predicate(self.topic, True) if self.is_expression else None
        return topic == self.topic if matches is None else matches(topic)


def read_rules(directory: Path, instance: str) -> tuple[tuple[EntryRule, ...], str | None]:
    """The rules of all queues as they were written down last, and what is to be said if there are none to be had."""
    path = queues_ack_path(directory, instance)
    try:
        _, starts = read_queues_ack(path)
    except FileNotFoundError:
        return (), f"{path.name} is not there, so it is not known what the queues take"
    except (OSError, QueuesAckDamaged) as problem:
        return (), f"it is not known what the queues take: {problem}"
    rules = (_rule(start) for start in starts)
    return tuple(rule for rule in rules if rule is not None), None


def _rule(start: QueueStart) -> EntryRule | None:
    """None if it makes no sense: then nothing is known of that queue."""
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
