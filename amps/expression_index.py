"""An index of the expressions that may match a name, so that not all of them must be tried.

There may be thousands of expressions and hundreds of thousands of topics. Most expressions contain text that every
matching name must contain too (`^orders/eu/.*` needs `orders/eu/`). Each expression is filed under a few characters of
that text, and one with alternatives (`^A$|^B$`) under some characters of each. Only expressions filed under a text that
occurs in the name are tried.

The key is a necessary condition, never a sufficient one: every candidate must still be tried. If an expression is not
understood completely, it has no necessary text and is always a candidate.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

KEY_CHARACTERS_MAX = 8

_QUANTIFIER = re.compile(r"\{[0-9, ]*\}", re.ASCII)
# Escapes of one letter that are a class or an assertion. Expressions with other letters are not analysed.
_SIMPLE_ESCAPES = frozenset("dDwWsSbBAzZGhHvVRKX")
_IGNORES_CASE = "(?i)"
# Characters that equal only their other case when case is ignored. The ASCII letters `k` and `s` equal others too.
_PLAIN_RUN = re.compile(r"[\x00-JL-RT-jl-rt-\x7f]+")


def required_texts(expression: str) -> list[list[str]]:
    """For each alternative of a valid expression, the texts that every matching name contains. Empty if no such text is
    certain for one of the alternatives.
    """
    alternatives: list[list[str]] = []
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
            end_run()
            if depth == 0:
                alternatives.append(texts)
                texts = []
        elif character in "*?{":
            if run:
                # A character that may occur zero times is not required.
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
    alternatives.append(texts)
    return alternatives if all(alternatives) else []


def _class_end(expression: str, at: int) -> int | None:
    """The end of a character class that was opened just before `at`; None if it cannot be determined simply."""
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


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an expression: texts of which a name must contain one, all in lower case if `folded`."""

    texts: tuple[str, ...]
    folded: bool = False

    def may_match(self, name: str) -> bool:
        """Whether a name contains one of the texts."""
        name = name.lower() if self.folded else name
        return any(text in name for text in self.texts)


_ANYTHING = Keys(("",))


class ExpressionIndex(Generic[Item]):
    """An index of items named by expressions, such as subscriptions."""

    def __init__(self) -> None:
        self._exact: _Filed[Item] = [{} for _ in range(KEY_CHARACTERS_MAX + 1)]
        self._folded: _Filed[Item] = [{} for _ in range(KEY_CHARACTERS_MAX + 1)]

    def add(self, expression: str, item: Item) -> Keys:
        """File an item under a valid expression. Return the keys for `remove`."""
        keys = self._keys_of(expression)
        for text in keys.texts:
            self._table(keys)[len(text)].setdefault(text, {})[item] = None
        return keys

    def remove(self, keys: Keys, item: Item) -> None:
        """Remove an item. keys: the result of `add`."""
        for text in keys.texts:
            filed = self._table(keys)[len(text)]
            del filed[text][item]
            if not filed[text]:
                del filed[text]

    def filed_for(self, name: str) -> Iterator[dict[Item, None]]:
        """All items that may match a name, in groups.

        Within a group the newest is last. An item may be in several groups.
        """
        yield from _found(self._exact, name)
        if any(self._folded):
            yield from _found(self._folded, name.lower())

    def _table(self, keys: Keys) -> "_Filed[Item]":
        return self._folded if keys.folded else self._exact

    def _keys_of(self, expression: str) -> Keys:
        folded = expression.startswith(_IGNORES_CASE)
        alternatives = required_texts(expression.removeprefix(_IGNORES_CASE))
        if folded:
            alternatives = [
                [run.lower() for text in texts for run in _PLAIN_RUN.findall(text)] for texts in alternatives
            ]
        if not alternatives or not all(alternatives):
            return _ANYTHING
        table = self._folded if folded else self._exact
        return Keys(tuple({_best_key(texts, table): None for texts in alternatives}), folded)


_Filed = list[dict[str, dict[Item, None]]]


def _found(table: "_Filed[Item]", name: str) -> Iterator[dict[Item, None]]:
    for length, filed in enumerate(table):
        if filed:
            keys = {name[at : at + length] for at in range(len(name) - length + 1)} if length else {""}
            for key in filed.keys() & keys:
                yield filed[key]


def _best_key(texts: list[str], table: "_Filed[Item]") -> str:
    """Of all pieces of the required texts, the one with the fewest filed items; of several such, the longest."""
    pieces = [
        text[at : at + KEY_CHARACTERS_MAX]
        for text in texts
        for at in range(max(1, len(text) - KEY_CHARACTERS_MAX + 1))
    ]
    return min(pieces, key=lambda piece: (len(table[len(piece)].get(piece, ())), -len(piece)))
