"""The rule for topics: which names are regular expressions, and which names those match.

A topic that contains one of `^ $ . * ? + | ( ) [ ] { } \\` is a PCRE expression, unanchored and case-sensitive
(protocol.md §8), unless RegexTopicSupport is off or the command has `non_regex_topic`. Configuration, core, transports
and readers of journals all use this rule. The module depends on none of them, and is quick to import.
"""

from collections.abc import Callable

import pcre2

REGEX_CHARACTERS = frozenset("^$.*?+|()[]{}\\")
# Topics with this prefix belong to the server.
RESERVED_PREFIX = "/AMPS"
# The only one of them that clients may publish to. Its messages are discarded (protocol.md §7.1).
DISCARDED_TOPIC = "/AMPS/devnull"


class BadTopicExpression(ValueError):
    """A topic with regex characters that is not a valid expression."""


def has_regex_characters(topic: str) -> bool:
    """Whether a topic is taken as an expression if expressions are allowed."""
    return not REGEX_CHARACTERS.isdisjoint(topic)


def may_be_a_name(topic: str) -> bool:
    """Whether a topic may also be meant as a literal name: its only regex characters are dots."""
    return not has_regex_characters(topic.replace(".", ""))


def means_reserved_topics(expression: str) -> bool:
    """Whether an expression begins like the names of the server's own topics, and has no alternative that does not.

    Without `^` it matches `x/AMPS/y` too, but the server's topics are meant.
    """
    if not expression.removeprefix("^").startswith(f"{RESERVED_PREFIX}/"):
        return False
    depth = 0
    escaped = in_class = False
    for character in expression:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            return False
    return True


def topic_predicate(
    topic: str, regex_allowed: bool, *, when_too_hard: bool = False
) -> Callable[[str], bool] | None:
    """A test for topic names, or None if the topic is literal. Raises BadTopicExpression.

    `when_too_hard`: the result for a name on which the expression exceeds the engine's limits. A predicate that denies
    access must use True.
    """
    if not regex_allowed or not has_regex_characters(topic):
        return None
    return pattern_predicate(topic, when_too_hard=when_too_hard)


def pattern_predicate(pattern: str, *, when_too_hard: bool = False) -> Callable[[str], bool]:
    """A test for topic names by a text that is always an expression, such as `Pattern` of a SOW topic.

    `when_too_hard`: as of `topic_predicate`. Raises BadTopicExpression.
    """
    try:
        compiled = pcre2.compile(pattern)
    except (pcre2.PatternError, UnicodeError, ValueError) as error:
        raise BadTopicExpression(f"{pattern!r}: {error}") from error

    def matches(name: str) -> bool:
        try:
            return compiled.search(name) is not None
        except (pcre2.LibraryError, UnicodeError):
            return when_too_hard

    return matches
