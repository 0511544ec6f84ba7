"""Which queues a topic feeds, and what a queue's name stands for: pure functions of a configuration.

A queue is named by its number, its place in `ServerConfig.queues`. Core, transports and services ask here, so that
they agree. Nothing is remembered between calls: whoever asks for every message keeps the answers.
"""

from collections.abc import Callable

from amps.config.model import ServerConfig
from amps.topic_expressions import RESERVED_PREFIX, topic_predicate


class QueueTopics:
    """The queues of a configuration by their topics."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises BadTopicExpression for a configuration that was not read by `amps.config.load`."""
        self._queues = config.queues
        self._by_name = {(queue.name, queue.message_type): index for index, queue in enumerate(config.queues)}
        self._literal: dict[tuple[str, str], list[int]] = {}
        self._predicates: dict[str, list[tuple[int, Callable[[str], bool]]]] = {}
        for index, queue in enumerate(config.queues):
            predicate = topic_predicate(queue.underlying_topic, queue.underlying_is_regex)
            if predicate is None:
                self._literal.setdefault((queue.underlying_topic, queue.message_type), []).append(index)
            else:
                self._predicates.setdefault(queue.message_type, []).append((index, predicate))

    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        """The queues, in ascending order, that take the messages of a topic, if the log does (queues.md §3). Topics of
        the server itself feed none.
        """
        if topic.startswith(RESERVED_PREFIX):
            return ()
        found = list(self._literal.get((topic, message_type), ()))
        found += [index for index, matches in self._predicates.get(message_type, ()) if matches(topic)]
        return tuple(sorted(found))

    def publish_target(self, name: str, message_type: str) -> str | None:
        """The topic under which a publish to the name of a queue is recorded (queues.md §4); None: it is no queue's."""
        index = self._by_name.get((name, message_type))
        return None if index is None else self._queues[index].default_publish_target

    def queue(self, name: str, message_type: str) -> int | None:
        """The queue with that name, taken literally; None if there is none."""
        return self._by_name.get((name, message_type))

    def is_own_topic(self, index: int) -> bool:
        """Whether a queue's name is its underlying topic, so that every subscription to it without a bookmark is one to
        the queue (queues.md §1.6).
        """
        queue = self._queues[index]
        return not queue.underlying_is_regex and queue.underlying_topic == queue.name
