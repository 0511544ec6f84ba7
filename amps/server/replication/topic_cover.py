"""Whether topics of one configuration are among those of another: rules for expressions (replication.md 25.7, 25.51).

Pure functions. Topics of a configuration are names or expressions in a message type. An expression has no end of
topics, so containment is proved only in simple cases: the same text, an expression that matches everything, a prefix of
a prefix, or else by the concrete topics that the instance knows. `covers` answers no when in doubt, `may_overlap` yes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from amps.topic_expressions import REGEX_CHARACTERS, topic_predicate

_EVERYTHING = frozenset({"", ".", ".*", ".+", "^", "^.", "^.*", "^.+", "^.*$", "^.+$", ".*$", ".+$", "$"})
_OPTIONAL = frozenset("*?{")


@dataclass(frozen=True, slots=True)
class Topics:
    """A name, or an expression if `is_regex`, in a message type. Raises BadTopicExpression for a bad expression."""

    name: str
    message_type: str
    is_regex: bool = False
    _predicate: Callable[[str], bool] | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_predicate", topic_predicate(self.name, self.is_regex))

    def matches(self, topic: str, message_type: str) -> bool:
        """Whether a concrete topic is among these."""
        if message_type != self.message_type:
            return False
        return topic == self.name if self._predicate is None else self._predicate(topic)

    @property
    def prefix(self) -> str | None:
        """The text with which all of these topics begin; None: unknown."""
        if not self.is_regex:
            return self.name
        if not self.name.startswith("^") or "|" in self.name:
            return None
        text = self.name[1:]
        end = next((index for index, one in enumerate(text) if one in REGEX_CHARACTERS), len(text))
        if end < len(text) and text[end] in _OPTIONAL:
            end = max(0, end - 1)
        return text[:end]

    @property
    def is_whole_prefix(self) -> bool:
        """Whether these are all topics that begin with `prefix`."""
        if not self.is_regex:
            return False
        return self.name in _EVERYTHING or self.name.removesuffix(".*") == f"^{self.prefix}"

    @property
    def whole_prefix(self) -> str:
        """The prefix, if these are all topics that begin with it."""
        return "" if self.name in _EVERYTHING else self.prefix or ""


def covers(theirs: Iterable[Topics], ours: Topics, known: Iterable[str]) -> bool:
    """Whether all topics of `ours` are among `theirs`. `known`: the concrete topics of this message type that this
    instance knows.
    """
    of_type = [topics for topics in theirs if topics.message_type == ours.message_type]
    if not ours.is_regex:
        return any(topics.matches(ours.name, ours.message_type) for topics in of_type)
    prefix = ours.prefix
    for topics in of_type:
        if topics.is_regex and topics.name == ours.name:
            return True
        if topics.is_whole_prefix and (
            topics.whole_prefix == "" or (prefix is not None and prefix.startswith(topics.whole_prefix))
        ):
            return True
    concrete = [topic for topic in known if ours.matches(topic, ours.message_type)]
    return bool(concrete) and all(
        any(topics.matches(topic, ours.message_type) for topics in of_type) for topic in concrete
    )


def may_overlap(one: Topics, other: Topics) -> bool:
    """Whether a topic may be among both."""
    if one.message_type != other.message_type:
        return False
    if not one.is_regex:
        return other.matches(one.name, one.message_type)
    if not other.is_regex:
        return one.matches(other.name, other.message_type)
    if one.prefix is None or other.prefix is None:
        return True
    return one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)
