"""Which records a query wants: what options and pushed-down filters say, in a form that travels to executors.

A `Selection` only ever gets narrower. Tests on topic and message type are decided once per topic of a file; everything
else is two ends of a range, or a bit per kind, and is compared in compiled code.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from amps._core.columns.columns import ALL_KINDS, KINDS, NO_LIMIT
from amps.topic_expressions import topic_predicate

KIND_BITS = {name: 1 << kind for kind, name in KINDS.items()}


@dataclass(frozen=True, slots=True)
class NameTest:
    """A test of a topic or message type. `operation`: "in", "starts", "ends", "contains" or "option" (literal or
    expression, as in a subscription); `values`: one of them must hold.
    """

    operation: str
    values: tuple[str, ...]
    negated: bool = False

    def holds(self, name: str) -> bool:
        """Raises BadTopicExpression."""
        return any(self._test(value)(name) for value in self.values) is not self.negated

    def _test(self, value: str) -> Callable[[str], bool]:
        match self.operation:
            case "in":
                return lambda name: name == value
            case "starts":
                return lambda name: name.startswith(value)
            case "ends":
                return lambda name: name.endswith(value)
            case "contains":
                return lambda name: value in name
            case _:
                return _topic_test(value)


@functools.cache
def _topic_test(value: str) -> Callable[[str], bool]:
    return topic_predicate(value, True) or value.__eq__


@dataclass(frozen=True, slots=True)
class Selection:
    """A record is wanted if all of this holds. Times are UNIX microseconds."""

    topic_tests: tuple[NameTest, ...] = ()
    message_type_tests: tuple[NameTest, ...] = ()
    kinds: int = ALL_KINDS
    first_position: int = 0
    end_position: int = NO_LIMIT
    """The first one that is not wanted any more."""
    first_time_us: int = 0
    last_time_us: int = NO_LIMIT

    @property
    def names_topics(self) -> bool:
        """Whether it depends on the topic, or its message type, if a record is wanted."""
        return bool(self.topic_tests or self.message_type_tests)

    @property
    def is_empty(self) -> bool:
        """Whether no record can be wanted."""
        return (
            not self.kinds
            or self.first_position >= self.end_position
            or self.first_time_us > self.last_time_us
        )

    def wants_topic(self, topic: bytes, message_type: bytes) -> bool:
        """Whether records of a topic may be wanted."""
        name, type_name = topic.decode(errors="replace"), message_type.decode(errors="replace")
        return all(test.holds(name) for test in self.topic_tests) and all(
            test.holds(type_name) for test in self.message_type_tests
        )

    def with_kinds(self, kinds: int) -> "Selection":
        """Of these kinds, too."""
        return replace(self, kinds=self.kinds & kinds)

    def with_positions(self, first: int = 0, end: int = NO_LIMIT) -> "Selection":
        """From a log position on, and before another one, too."""
        return replace(
            self,
            first_position=max(self.first_position, first),
            end_position=max(0, min(self.end_position, end)),
        )

    def with_times(self, first_us: int = 0, last_us: int = NO_LIMIT) -> "Selection":
        """From a microsecond on, and up to another one, too."""
        if last_us < 0:
            return self.with_kinds(0)
        return replace(
            self,
            first_time_us=max(self.first_time_us, first_us),
            last_time_us=min(self.last_time_us, last_us),
        )


def bits_of_kinds(names: frozenset[str] | set[str]) -> int:
    """Kinds that are named. Names that are none of the log's name nothing."""
    return sum(bit for name, bit in KIND_BITS.items() if name in names)
