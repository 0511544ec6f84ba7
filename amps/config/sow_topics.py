"""The SOW topics that a topic of a command means: pure functions of a configuration (sow.md §§2, 7).

Core, transports and services use this module, so that they agree. Results are not cached: a caller that needs them for
every message keeps them. A definition with `Pattern` stands for many logical topics; each of them is found here by its
own name, but the names that have records are known to the core only.
"""

from collections.abc import Callable

from amps.config.model import ServerConfig
from amps.config.model_sow import SowTopicConfig
from amps.topic_expressions import RESERVED_PREFIX, pattern_predicate, topic_predicate


class SowTopics:
    """The SOW topics of a configuration, by their names."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises BadTopicExpression for a configuration that was not read by `amps.config.load`."""
        self.topics = config.sow_topics
        self._regex_topic_support = config.regex_topic_support
        self._by_name = {
            (topic.name, topic.message_type): topic for topic in self.topics if topic.pattern is None
        }
        self._queues = {(queue.name, queue.message_type) for queue in config.queues}
        self._patterns: list[tuple[SowTopicConfig, Callable[[str], bool]]] = [
            (topic, pattern_predicate(topic.pattern)) for topic in self.topics if topic.pattern is not None
        ]

    def find(self, topic: str, message_type: str) -> SowTopicConfig | None:
        """Return the definition that keeps the records of a topic, given by its literal name; None if there is none.

        A definition of that name, also of a queue, counts before patterns. Patterns count in the order of the file.
        """
        found = self._by_name.get((topic, message_type))
        if found is not None or topic.startswith(RESERVED_PREFIX) or (topic, message_type) in self._queues:
            return found
        for definition, matches in self._patterns:
            if definition.message_type == message_type and matches(topic):
                return definition
        return None

    def matching(
        self, topic: str, message_type: str, *, regex_allowed: bool = True
    ) -> tuple[SowTopicConfig, ...]:
        """Return the definitions that may have records of a topic of a command, in the order of the file.

        Of an expression, every definition with a pattern is among them: its logical topics are tested one by one.
        `regex_allowed`: whether the command lets its topic be an expression. Raises BadTopicExpression.
        """
        predicate = topic_predicate(topic, regex_allowed and self._regex_topic_support)
        if predicate is None:
            found = self.find(topic, message_type)
            return () if found is None else (found,)
        return tuple(
            definition
            for definition in self.topics
            if definition.message_type == message_type
            and (definition.pattern is not None or predicate(definition.name))
        )
