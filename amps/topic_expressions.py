"""The rule for topics: which names are expressions, and what those match.

A topic that holds one of `^ $ . * ? + | ( ) [ ] { } \\` is a PCRE expression, unanchored and case-sensitive
(protocol.md §8), unless RegexTopicSupport is off or the command says `non_regex_topic`. Configuration, core, transports
and readers of journals all go by this one rule. It knows nothing of any of them, and is quick to import.
"""

from collections.abc import Callable

import pcre2

REGEX_CHARACTERS = frozenset("^$.*?+|()[]{}\\")
# Topics that begin so belong to the server.
RESERVED_PREFIX = "/AMPS"
# The one of them that clients may publish to, for nothing (protocol.md §7.1).
DISCARDED_TOPIC = "/AMPS/devnull"


class BadTopicExpression(ValueError):
    """A topic with regex characters that is no valid expression."""


def has_regex_characters(topic: str) -> bool:
    """Whether a topic would be taken as an expression."""
    return not REGEX_CHARACTERS.isdisjoint(topic)


def may_be_a_name(topic: str) -> bool:
    """Whether somebody may well mean the topic of that very name: no regex character is in it but the dot."""
    return not has_regex_characters(topic.replace(".", ""))


def means_reserved_topics(expression: str) -> bool:
    """Whether an expression begins as the names of the server's own topics do, and has no alternative that does not.

    Without `^` it matches `x/AMPS/y`, too; but what is meant is the server's topics.
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
