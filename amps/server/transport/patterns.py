"""Which expressions match a topic, without trying all of them.

An instance may have thousands of regex subscriptions and hundreds of thousands of topics. Two things keep their
product small. Equal expressions of several subscriptions are one Pattern here. And most expressions hold text that
every matching name must hold too (`^orders/eu/.*` needs `orders/eu/`): each such pattern is filed under a few
characters of that text, and only patterns filed under something that occurs in the name are tried.

What is filed is a necessary condition, never a sufficient one: every candidate is still tried. Where the text of an
expression is not understood in full, nothing is taken for necessary, and the pattern is always a candidate.

Generations make the work incremental: a pattern knows when it was added, and a search can ask for the newer ones only.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amps.server.transport.subscriptions import Membership

KEY_CHARACTERS_MAX = 8
LEAVERS_MIN = 64

_QUANTIFIER = re.compile(r"\{[0-9, ]*\}", re.ASCII)
# Escapes of one letter that stand for a class or a place. All others are not looked into.
_SIMPLE_ESCAPES = frozenset("dDwWsSbBAzZGhHvVRKX")


def required_texts(expression: str) -> list[str]:
    """Texts that every name matched by a valid expression holds; empty if none is known for certain."""
    texts: list[str] = []
    run: list[str] = []
    depth = 0
    at = 0

    def end_run() -> None:
        if run and depth == 0:
            texts.append("".join(run))
        run.clear()

    while at < len(expression):
        character = expression[at]
        at += 1
        if character == "\\":
            escaped = expression[at : at + 1]
            at += 1
            if escaped.isascii() and not escaped.isalnum() and escaped:
                run.append(escaped)
            elif escaped in _SIMPLE_ESCAPES and escaped:
                end_run()
            else:
                return []
        elif character == "[":
            end_run()
            end = _class_end(expression, at)
            if end is None:
                return []
            at = end
        elif character == "(":
            end_run()
            if expression[at : at + 1] == "*" or (
                expression[at : at + 1] == "?" and expression[at + 1 : at + 2] != ":"
            ):
                # Settings, assertions, conditions, comments.
                return []
            at += 2 if expression[at : at + 1] == "?" else 0
            depth += 1
        elif character == ")":
            end_run()
            depth -= 1
        elif character == "|":
            if depth == 0:
                return []
            end_run()
        elif character in "*?{":
            if run:
                # What may occur no times is not required.
                run.pop()
            end_run()
            quantifier = _QUANTIFIER.match(expression, at - 1)
            if quantifier is not None:
                at = quantifier.end()
        elif character in ".^$+":
            end_run()
        else:
            run.append(character)
    end_run()
    return texts


def _class_end(expression: str, at: int) -> int | None:
    """Where a character class that was opened just before `at` ends; None where that needs a closer look."""
    if expression[at : at + 1] == "^":
        at += 1
    first = at
    while at < len(expression):
        character = expression[at]
        if character == "]" and at > first:
            return at + 1
        if character == "[" or expression[at : at + 2] in ("\\Q", "\\E"):
            return None
        at += 2 if character == "\\" else 1
    return None


@dataclass(slots=True, eq=False)
class Pattern:
    """One expression, with those who name it and the generation in which each came.

    `added` and `changed`: generations in which the pattern came and in which its members changed last. `left`: who
    went, and when, as far back as the generation `forgotten`.
    """

    text: str
    matches: Callable[[str], bool]
    added: int
    changed: int
    key: str = ""
    members: "dict[Membership, int]" = field(default_factory=dict)
    left: "list[tuple[int, Membership]]" = field(default_factory=list)
    forgotten: int = 0

    def came_since(self, since: int) -> "list[Membership]":
        """Members that came after a generation and are still there, in the order of coming."""
        newest = itertools.takewhile(lambda item: item[1] > since, reversed(self.members.items()))
        return [member for member, _ in newest][::-1]

    def left_since(self, since: int) -> "list[Membership] | None":
        """Who left after a generation; None if that is not known any more."""
        if since < self.forgotten:
            return None
        return [
            member for _, member in itertools.takewhile(lambda item: item[0] > since, reversed(self.left))
        ]

    def note_left(self, member: "Membership", generation: int) -> None:
        """A member left. Leavers are remembered in proportion to members: then a new search costs no more."""
        self.left.append((generation, member))
        if len(self.left) > LEAVERS_MIN + 2 * len(self.members):
            half = len(self.left) // 2
            self.forgotten = self.left[half - 1][0]
            del self.left[:half]


class PatternIndex:
    """The patterns of one set of subscriptions."""

    def __init__(self) -> None:
        self._by_text: dict[str, Pattern] = {}
        self._by_key: list[dict[str, dict[Pattern, None]]] = [{} for _ in range(KEY_CHARACTERS_MAX + 1)]

    def __bool__(self) -> bool:
        return bool(self._by_text)

    def add(self, member: "Membership", matches: Callable[[str], bool], generation: int) -> None:
        """A subscription came; `generation` is higher than all before."""
        text = member.topic
        pattern = self._by_text.get(text)
        if pattern is None:
            pattern = self._by_text[text] = Pattern(text, matches, generation, generation)
            pattern.key = self._best_key(text)
            self._by_key[len(pattern.key)].setdefault(pattern.key, {})[pattern] = None
        pattern.members[member] = generation
        pattern.changed = generation

    def remove(self, member: "Membership", generation: int) -> None:
        """A subscription left."""
        pattern = self._by_text.get(member.topic)
        if pattern is None or member not in pattern.members:
            return
        del pattern.members[member]
        pattern.changed = generation
        pattern.note_left(member, generation)
        if not pattern.members:
            del self._by_text[pattern.text]
            filed = self._by_key[len(pattern.key)]
            del filed[pattern.key][pattern]
            if not filed[pattern.key]:
                del filed[pattern.key]

    def matching(self, name: str, since: int) -> list[Pattern]:
        """Patterns added after the generation `since` that match a topic's name."""
        return [pattern for pattern in self._candidates(name, since) if pattern.matches(name)]

    def _candidates(self, name: str, since: int) -> list[Pattern]:
        newer = self._added_after(since, len(name))
        if newer is not None:
            return [pattern for pattern in newer if pattern.key in name]
        found: list[Pattern] = []
        for length, filed in enumerate(self._by_key):
            if not filed:
                continue
            keys = {name[at : at + length] for at in range(len(name) - length + 1)} if length else {""}
            for key in filed.keys() & keys:
                # The newest come last in each dict.
                found += itertools.takewhile(lambda pattern: pattern.added > since, reversed(filed[key]))
        return found

    def _added_after(self, since: int, limit: int) -> list[Pattern] | None:
        """The patterns newer than a generation; None if there are more than a search by keys would cost."""
        newer: list[Pattern] = []
        for pattern in reversed(self._by_text.values()):
            if pattern.added <= since:
                return newer
            if len(newer) == limit:
                return None
            newer.append(pattern)
        return newer

    def _best_key(self, text: str) -> str:
        """What to file a pattern under: of its required text the piece that the fewest have."""
        texts = required_texts(text)
        length = min(KEY_CHARACTERS_MAX, max(map(len, texts), default=0))
        pieces = [piece[at : at + length] for piece in texts for at in range(len(piece) - length + 1)]
        filed = self._by_key[length]
        return min(pieces, key=lambda piece: len(filed.get(piece, ())), default="") if length else ""
