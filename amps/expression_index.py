"""Which expressions may match a name, without trying all of them.

There may be thousands of expressions and hundreds of thousands of topics. Most expressions hold text that every
matching name must hold too (`^orders/eu/.*` needs `orders/eu/`): each is filed under a few characters of that text, one
with alternatives (`^A$|^B$`) under some of each, and only what is filed under something that occurs in the name is
tried.

What is filed is a necessary condition, never a sufficient one: every candidate is still tried. Where the text of an
expression is not understood in full, nothing is taken for necessary, and the expression is always a candidate.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

KEY_CHARACTERS_MAX = 8

_QUANTIFIER = re.compile(r"\{[0-9, ]*\}", re.ASCII)
# Escapes of one letter that stand for a class or a place. All others are not looked into.
_SIMPLE_ESCAPES = frozenset("dDwWsSbBAzZGhHvVRKX")
_IGNORES_CASE = "(?i)"
# Characters that are the same as none but their other case; `k` and `s` are not, among the letters of ASCII.
_PLAIN_RUN = re.compile(r"[\x00-JL-RT-jl-rt-\x7f]+")


def required_texts(expression: str) -> list[list[str]]:
    """For each alternative of a valid expression texts that every name holds which it matches; empty if for one of them
    none is known for certain.
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
    alternatives.append(texts)
    return alternatives if all(alternatives) else []


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


@dataclass(frozen=True, slots=True)
class Keys:
    """What an expression is filed under: texts of which a name must hold one, all without capitals if `folded`."""

    texts: tuple[str, ...]
    folded: bool = False

    def may_match(self, name: str) -> bool:
        """Whether a name holds one of them."""
        name = name.lower() if self.folded else name
        return any(text in name for text in self.texts)


_ANYTHING = Keys(("",))


class ExpressionIndex(Generic[Item]):
    """Things that are named by expressions, such as subscriptions."""

    def __init__(self) -> None:
        self._exact: _Filed[Item] = [{} for _ in range(KEY_CHARACTERS_MAX + 1)]
        self._folded: _Filed[Item] = [{} for _ in range(KEY_CHARACTERS_MAX + 1)]

    def add(self, expression: str, item: Item) -> Keys:
        """File something under a valid expression. Returns what it is removed by."""
        keys = self._keys_of(expression)
        for text in keys.texts:
            self._table(keys)[len(text)].setdefault(text, {})[item] = None
        return keys

    def remove(self, keys: Keys, item: Item) -> None:
        """Something is filed no more."""
        for text in keys.texts:
            filed = self._table(keys)[len(text)]
            del filed[text][item]
            if not filed[text]:
                del filed[text]

    def filed_for(self, name: str) -> Iterator[dict[Item, None]]:
        """All that may match a name, in groups, in each of which the newest come last; something may be in several."""
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
    """Of the texts that an expression requires the piece that the fewest are filed under, of such the longest."""
    pieces = [
        text[at : at + KEY_CHARACTERS_MAX]
        for text in texts
        for at in range(max(1, len(text) - KEY_CHARACTERS_MAX + 1))
    ]
    return min(pieces, key=lambda piece: (len(table[len(piece)].get(piece, ())), -len(piece)))
