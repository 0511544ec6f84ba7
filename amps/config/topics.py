"""The recorded topics of a configuration, by the rule for topics (`amps.topic_expressions`).

Core, transports and the check of a configuration use the same test, so that they agree on which messages are recorded
and which enter a queue.
"""

from collections.abc import Callable, Iterable

from amps.config.model import LoggedTopic
from amps.topic_expressions import RESERVED_PREFIX, topic_predicate


class LoggedTopics:
    """The topics that a transaction log records. Raises BadTopicExpression."""

    def __init__(self, topics: Iterable[LoggedTopic], regex_topic_support: bool) -> None:
        self._literal: dict[tuple[str, str], list[LoggedTopic]] = {}
        self._predicates: list[tuple[LoggedTopic, Callable[[str], bool]]] = []
        for entry in topics:
            predicate = topic_predicate(entry.name, regex_topic_support)
            if predicate is None:
                self._literal.setdefault((entry.name, entry.message_type), []).append(entry)
            else:
                self._predicates.append((entry, predicate))

    @property
    def records_anything(self) -> bool:
        """Whether any topic can be recorded. Persisted acknowledgements are then conflated (protocol.md §5.3)."""
        return bool(self._literal or self._predicates)

    def is_logged(self, topic: str, message_type: str) -> bool:
        """Whether messages of that topic are written to the journal. Topics of the server itself never are."""
        return bool(self._matching(topic, message_type))

    def content_filters(self, topic: str, message_type: str) -> tuple[str, ...]:
        """Return filters, one of which a message must match to be recorded; empty: all messages are recorded."""
        texts = [entry.filter for entry in self._matching(topic, message_type)]
        return () if None in texts else tuple(text for text in texts if text is not None)

    def _matching(self, topic: str, message_type: str) -> list[LoggedTopic]:
        if topic.startswith(RESERVED_PREFIX):
            return []
        found = list(self._literal.get((topic, message_type), ()))
        found += [
            entry
            for entry, predicate in self._predicates
            if entry.message_type == message_type and predicate(topic)
        ]
        return found
