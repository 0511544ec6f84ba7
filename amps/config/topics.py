"""Topics: which names are expressions, what they match, which topics are recorded.

A topic that holds one of `^ $ . * ? + | ( ) [ ] { } \\` is a PCRE expression, unanchored and case-sensitive
(protocol.md §8), unless RegexTopicSupport is off or the command says `non_regex_topic`. Core, transports and the check
of a configuration use the same rule, so that they agree on what is recorded and what a queue takes.
"""

from collections.abc import Callable, Iterable

import pcre2

from amps.config.model import LoggedTopic

REGEX_CHARACTERS = frozenset("^$.*?+|()[]{}\\")
# Topics that begin so belong to the server.
RESERVED_PREFIX = "/AMPS"


class BadTopicExpression(ValueError):
    """A topic with regex characters that is no valid expression."""


def has_regex_characters(topic: str) -> bool:
    """Whether a topic would be taken as an expression."""
    return not REGEX_CHARACTERS.isdisjoint(topic)


def topic_predicate(
    topic: str, regex_allowed: bool, *, when_too_hard: bool = False
) -> Callable[[str], bool] | None:
    """A test for topic names, or None if the topic is literal. Raises BadTopicExpression.

    `when_too_hard`: the answer for a name on which the expression runs into the engine's limits. What denies must
    say True there.
    """
    if not regex_allowed or not has_regex_characters(topic):
        return None
    try:
        pattern = pcre2.compile(topic)
    except (pcre2.PatternError, UnicodeError, ValueError) as error:
        raise BadTopicExpression(f"{topic!r}: {error}") from error

    def matches(name: str) -> bool:
        try:
            return pattern.search(name) is not None
        except (pcre2.LibraryError, UnicodeError):
            return when_too_hard

    return matches


class LoggedTopics:
    """What a transaction log with these topics takes. Raises BadTopicExpression."""

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
        """Whether any topic can be recorded: then persisted acknowledgements are conflated (protocol.md §5.3)."""
        return bool(self._literal or self._predicates)

    def is_logged(self, topic: str, message_type: str) -> bool:
        """Whether messages of that topic go to the journal. Topics of the server itself never do."""
        return bool(self._matching(topic, message_type))

    def content_filters(self, topic: str, message_type: str) -> tuple[str, ...]:
        """Filters of which a message must match one to go to the journal; none: all messages go there."""
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
