"""The queues that a topic feeds, and the meaning of a queue's name: pure functions of a configuration.

A queue is identified by its number, its place in `ServerConfig.queues`. Core, transports and services use this module,
so that they agree. Results are not cached between calls: a caller that needs them for every message keeps them. A topic
is matched against only a few expressions of a large configuration (amps/expression_index.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from amps.config.model import ServerConfig
from amps.expression_index import ExpressionIndex
from amps.topic_expressions import RESERVED_PREFIX, topic_predicate


@dataclass(slots=True, eq=False)
class _Expression:
    """An underlying topic that is an expression, and its queues."""

    matches: Callable[[str], bool]
    queues: list[int] = field(default_factory=list)


class QueueTopics:
    """The queues of a configuration by their topics."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises BadTopicExpression for a configuration that was not read by `amps.config.load`."""
        self._queues = config.queues
        self._by_name = {(queue.name, queue.message_type): index for index, queue in enumerate(config.queues)}
        self._literal: dict[tuple[str, str], list[int]] = {}
        self._expressions: dict[str, ExpressionIndex[_Expression]] = {}
        known: dict[tuple[str, str], _Expression] = {}
        for index, queue in enumerate(config.queues):
            predicate = topic_predicate(queue.underlying_topic, queue.underlying_is_regex)
            if predicate is None:
                self._literal.setdefault((queue.underlying_topic, queue.message_type), []).append(index)
                continue
            expression = known.get((queue.underlying_topic, queue.message_type))
            if expression is None:
                expression = known[queue.underlying_topic, queue.message_type] = _Expression(predicate)
                filed = self._expressions.setdefault(queue.message_type, ExpressionIndex())
                filed.add(queue.underlying_topic, expression)
            expression.queues.append(index)

    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        """Return the queues, in ascending order, that messages of a topic enter if they are recorded (queues.md §3).
        Topics of the server itself feed no queue.
        """
        if topic.startswith(RESERVED_PREFIX):
            return ()
        found = list(self._literal.get((topic, message_type), ()))
        index = self._expressions.get(message_type)
        if index is not None:
            candidates = {expression: None for filed in index.filed_for(topic) for expression in filed}
            for expression in candidates:
                if expression.matches(topic):
                    found += expression.queues
        return tuple(sorted(found))

    def publish_target(self, name: str, message_type: str) -> str | None:
        """Return the topic under which a publish to a queue's name is recorded (queues.md §4); None: not a queue."""
        index = self._by_name.get((name, message_type))
        return None if index is None else self._queues[index].default_publish_target

    def queue(self, name: str, message_type: str) -> int | None:
        """Return the queue with that literal name; None if there is none."""
        return self._by_name.get((name, message_type))

    def is_own_topic(self, index: int) -> bool:
        """Whether a queue's name is its underlying topic. Every subscription to this topic without a bookmark is then a
        subscription to the queue (queues.md §1.6).
        """
        queue = self._queues[index]
        return not queue.underlying_is_regex and queue.underlying_topic == queue.name
