"""The topic expressions that match a topic, found without trying all expressions.

An instance may have thousands of regex subscriptions and hundreds of thousands of topics. Two measures keep their
product small. Equal expressions of several subscriptions are one Pattern here. And only those patterns are tried that
an ExpressionIndex finds for a name.

Generations make the search incremental: a pattern stores when it was added, and a search can be limited to newer ones.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from amps.expression_index import ExpressionIndex, Keys
from amps.server.transport.session import Membership

LEAVERS_MIN = 64


@dataclass(slots=True, eq=False)
class Pattern:
    """One expression, with its subscriptions and the generation in which each was added.

    `added` and `changed`: generations in which the pattern was added and in which its members changed last. `left`: the
    members that were removed, with the generation, as far back as the generation `forgotten`.
    """

    text: str
    matches: Callable[[str], bool]
    added: int
    changed: int
    keys: Keys = field(init=False)
    members: dict[Membership, int] = field(default_factory=dict)
    left: list[tuple[int, Membership]] = field(default_factory=list)
    forgotten: int = 0

    def came_since(self, since: int) -> list[Membership]:
        """Members that were added after a generation and are still there, in the order of adding."""
        newest = itertools.takewhile(lambda item: item[1] > since, reversed(self.members.items()))
        return [member for member, _ in newest][::-1]

    def left_since(self, since: int) -> list[Membership] | None:
        """Members that were removed after a generation; None if that is not known any more."""
        if since < self.forgotten:
            return None
        return [
            member for _, member in itertools.takewhile(lambda item: item[0] > since, reversed(self.left))
        ]

    def note_left(self, member: Membership, generation: int) -> None:
        """Note that a member was removed. The list is bounded in proportion to the members: beyond that, a new search
        costs no more.
        """
        self.left.append((generation, member))
        if len(self.left) > LEAVERS_MIN + 2 * len(self.members):
            half = len(self.left) // 2
            self.forgotten = self.left[half - 1][0]
            del self.left[:half]


class PatternIndex:
    """The patterns of one set of subscriptions."""

    def __init__(self) -> None:
        self._by_text: dict[str, Pattern] = {}
        self._index: ExpressionIndex[Pattern] = ExpressionIndex()

    def __bool__(self) -> bool:
        return bool(self._by_text)

    def add(self, member: Membership, matches: Callable[[str], bool], generation: int) -> None:
        """Add a subscription; `generation` is higher than all before."""
        text = member.topic
        pattern = self._by_text.get(text)
        if pattern is None:
            pattern = self._by_text[text] = Pattern(text, matches, generation, generation)
            pattern.keys = self._index.add(text, pattern)
        pattern.members[member] = generation
        pattern.changed = generation

    def remove(self, member: Membership, generation: int) -> None:
        """Remove a subscription."""
        pattern = self._by_text.get(member.topic)
        if pattern is None or member not in pattern.members:
            return
        del pattern.members[member]
        pattern.changed = generation
        pattern.note_left(member, generation)
        if not pattern.members:
            del self._by_text[pattern.text]
            self._index.remove(pattern.keys, pattern)

    def matching(self, name: str, since: int) -> list[Pattern]:
        """Patterns added after the generation `since` that match a topic's name."""
        return [pattern for pattern in self._candidates(name, since) if pattern.matches(name)]

    def _candidates(self, name: str, since: int) -> list[Pattern]:
        newer = self._added_after(since, len(name))
        if newer is not None:
            return [pattern for pattern in newer if pattern.keys.may_match(name)]
        found: dict[Pattern, None] = {}
        for filed in self._index.filed_for(name):
            # Within each dict, patterns are in the order of adding.
            found.update(
                dict.fromkeys(itertools.takewhile(lambda pattern: pattern.added > since, reversed(filed)))
            )
        return list(found)

    def _added_after(self, since: int, limit: int) -> list[Pattern] | None:
        """The patterns newer than a generation; None if they are more than a search by keys would try."""
        newer: list[Pattern] = []
        for pattern in reversed(self._by_text.values()):
            if pattern.added <= since:
                return newer
            if len(newer) == limit:
                return None
            newer.append(pattern)
        return newer
