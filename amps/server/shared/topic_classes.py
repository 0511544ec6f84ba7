"""What becomes of messages of a topic: recorded, only delivered, discarded, or refused.

Whoever publishes asks this when a topic is first published to: transports for their clients, the services process for
actions. The answer is kept in the topic table, so that no message waits for it.
"""

from collections.abc import Callable

from amps._core.expressions.machine import EvaluationContext, FilterSet
from amps._core.wire.topics import TopicTable
from amps.config import ServerConfig
from amps.config.queue_topics import QueueTopics
from amps.server.shared.filters import FilterCompiler
from amps.server.topics import DISCARDED_TOPIC, RESERVED_PREFIX, TopicMatcher


def make_topic_table(
    matcher: TopicMatcher,
    has_journal: bool,
    evaluation: Callable[[str], EvaluationContext],
    filters: FilterCompiler,
    queues: QueueTopics | None = None,
) -> TopicTable:
    """A table that classifies topics as the configuration says. `evaluation`: that of a message type. `queues`: their
    names, if there are any.
    """

    def classify(topic: str, message_type: str) -> tuple[bool, bool, str | None, FilterSet | None]:
        """Recorded, discarded, refusal, and which messages are recorded, if not all are."""
        if topic == DISCARDED_TOPIC:
            return False, True, None, None
        if topic.startswith(RESERVED_PREFIX):
            return False, False, "invalid topic", None
        if not (has_journal and matcher.is_logged(topic, message_type)):
            return False, False, None, None
        texts = matcher.content_filters(topic, message_type)
        if not texts:
            return True, False, None, None
        recorded = FilterSet(evaluation(message_type))
        for text in texts:
            recorded.add(filters.compile(text), text)
        return True, False, None, recorded

    return TopicTable(classify, queues)


def queue_topics(config: ServerConfig) -> QueueTopics | None:
    """The names of the queues; None if there are none."""
    return QueueTopics(config) if config.queues else None
