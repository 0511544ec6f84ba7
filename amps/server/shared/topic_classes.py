"""The class of a topic: its messages are recorded, only delivered, discarded, or refused.

Publishing processes determine it at the first publish to a topic: transports for their clients, the services process
for actions. The topic table stores it, so that later messages need no lookup.
"""

from collections.abc import Callable

from amps._core.expressions.machine import EvaluationContext, FilterSet
from amps._core.wire.topics import SowRules, TopicTable
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
    sow_rules: Callable[[str, str], SowRules | None] | None = None,
) -> TopicTable:
    """A table that classifies topics by the configuration. `evaluation`: returns the evaluation context of a message
    type. `queues`: the names of queues, if there are any. `sow_rules`: of SOW topics, if there are any.
    """

    def classify(topic: str, message_type: str) -> tuple[bool, bool, str | None, FilterSet | None]:
        """Return: recorded, discarded, refusal, and the filters of the recorded messages, if not all are recorded."""
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

    return TopicTable(classify, queues, sow_rules)


def queue_topics(config: ServerConfig) -> QueueTopics | None:
    """The names of the queues; None if there are none."""
    return QueueTopics(config) if config.queues else None
