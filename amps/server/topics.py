"""The rule for topics (`amps.topic_expressions`), and the topics of a configuration's transaction log."""

from amps.config import ServerConfig
from amps.config.topics import LoggedTopics
from amps.topic_expressions import (
    DISCARDED_TOPIC,
    RESERVED_PREFIX,
    BadTopicExpression,
    has_regex_characters,
    may_be_a_name,
    means_reserved_topics,
    topic_predicate,
)

__all__ = [
    "DISCARDED_TOPIC",
    "RESERVED_PREFIX",
    "BadTopicExpression",
    "TopicMatcher",
    "has_regex_characters",
    "may_be_a_name",
    "means_reserved_topics",
    "topic_predicate",
]


class TopicMatcher(LoggedTopics):
    """The topics that the transaction log records; none, if there is no log."""

    def __init__(self, config: ServerConfig) -> None:
        log = config.transaction_log
        super().__init__(log.topics if log is not None else (), config.regex_topic_support)
