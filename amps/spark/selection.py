"""The selection of records: the conditions of options and pushed-down filters, in a form that is sent to executors.

A `Selection` can only be narrowed. Tests on topic and message type are evaluated once per topic of a file. All other
conditions are the ends of a range, or a bit per kind, and are compared in compiled code.
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
    expression, as in a subscription); `values`: the test must hold for one of them.
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
    """The conditions on a record, all of which must hold. Times are UNIX microseconds."""

    topic_tests: tuple[NameTest, ...] = ()
    message_type_tests: tuple[NameTest, ...] = ()
    kinds: int = ALL_KINDS
    first_position: int = 0
    end_position: int = NO_LIMIT
    """Log position after the selected range."""
    first_time_us: int = 0
    last_time_us: int = NO_LIMIT

    @property
    def names_topics(self) -> bool:
        """Whether the selection has a condition on topic or message type."""
        return bool(self.topic_tests or self.message_type_tests)

    @property
    def is_empty(self) -> bool:
        """Whether no record can match."""
        return (
            not self.kinds
            or self.first_position >= self.end_position
            or self.first_time_us > self.last_time_us
        )

    def wants_topic(self, topic: bytes, message_type: bytes) -> bool:
        """Whether records of a topic may match."""
        name, type_name = topic.decode(errors="replace"), message_type.decode(errors="replace")
        return all(test.holds(name) for test in self.topic_tests) and all(
            test.holds(type_name) for test in self.message_type_tests
        )

    def with_kinds(self, kinds: int) -> "Selection":
        """Return the selection narrowed to these kinds."""
        return replace(self, kinds=self.kinds & kinds)

    def with_positions(self, first: int = 0, end: int = NO_LIMIT) -> "Selection":
        """Return the selection narrowed to log positions from `first` on and before `end`."""
        return replace(
            self,
            first_position=max(self.first_position, first),
            end_position=max(0, min(self.end_position, end)),
        )

    def with_times(self, first_us: int = 0, last_us: int = NO_LIMIT) -> "Selection":
        """Return the selection narrowed to times from `first_us` on up to and including `last_us`."""
        if last_us < 0:
            return self.with_kinds(0)
        return replace(
            self,
            first_time_us=max(self.first_time_us, first_us),
            last_time_us=min(self.last_time_us, last_us),
        )


def bits_of_kinds(names: frozenset[str] | set[str]) -> int:
    """Return the bits of the named kinds; unknown names are ignored."""
    return sum(bit for name, bit in KIND_BITS.items() if name in names)
