"""The queues that a topic, or an expression for topics, stands for (queues.md §1, §5.1, §14.4).

Queues are identified by their numbers: their places in the configuration. A subscription without a bookmark is to the
queues whose names match; messages of other matching topics it gets as ordinary messages (§22, D-23). A subscription
with a bookmark is to the underlying topics of these queues, as if they were ordinary topics.
"""

from collections.abc import Iterable

from amps.config import ServerConfig
from amps.config.queue_topics import QueueTopics
from amps.server.topics import topic_predicate


class QueueNames:
    """The queues of an instance by their names."""

    def __init__(self, config: ServerConfig) -> None:
        self.topics = QueueTopics(config)
        self.queues = config.queues
        self._regex_topic_support = config.regex_topic_support

    def matching(self, topic: str, message_type: str, literal: bool) -> tuple[int, ...]:
        """Numbers of the queues that a topic or expression stands for. Raises BadTopicExpression."""
        if not self.queues:
            return ()
        predicate = topic_predicate(topic, not literal and self._regex_topic_support)
        if predicate is None:
            number = self.topics.queue(topic, message_type)
            return () if number is None else (number,)
        return tuple(
            number
            for number, queue in enumerate(self.queues)
            if queue.message_type == message_type and predicate(queue.name)
        )

    def acknowledged(self, topic: str, message_type: str) -> int | None:
        """The queue that an acknowledgement by bookmark names. As in deliveries, the topic is taken literally."""
        return self.topics.queue(topic, message_type)

    def bookmark_topic(self, topic: str, literal: bool, queues: Iterable[int]) -> tuple[str, bool]:
        """The topic of a bookmark subscription that stands for queues, and whether it is a name. Raises
        BadTopicExpression.

        A name becomes the underlying topic. An expression becomes one that also matches the underlying topics.
        """
        is_name = topic_predicate(topic, not literal and self._regex_topic_support) is None
        alternatives = [] if is_name else [topic]
        for number in queues:
            queue = self.queues[number]
            if is_name:
                return queue.underlying_topic, not queue.underlying_is_regex
            if not queue.underlying_is_regex:
                alternatives.append(f"^{_quoted(queue.underlying_topic)}\\z")
            else:
                alternatives.append(queue.underlying_topic)
        if len(alternatives) <= 1:
            return topic, is_name
        # Each alternative numbers its groups from one, as it does by itself.
        return f"(?|{'|'.join(f'(?:{alternative})' for alternative in alternatives)})", False


def _quoted(name: str) -> str:
    """An expression that matches exactly a text."""
    return "".join(
        character if character.isalnum() or not character.isascii() else f"\\{character}"
        for character in name
    )
