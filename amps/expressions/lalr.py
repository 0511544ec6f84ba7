"""The machine of the parser: tokens, tables, and the loop that goes from a text to what a builder makes of it.

The tables are grammar.json, which make_tables.py makes of grammar.lark with the library Lark. They are kept ready-made
because making them takes a tenth of a second, and importing Lark as long again; loading them takes a millisecond. So
nothing is prepared beforehand: a process that is never asked about an expression pays nothing.

A contextual lexer: in every state of the parser only those terminals are tried that can stand there. The regular
expression that tries them is made when the parser comes into such a state for the first time.

Several threads may parse at once: what they share is made anew at worst, and is the same then.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final, NamedTuple

TABLES_FILE: Final = "grammar.json"
END: Final = "$END"

_Action = Callable[[list[Any]], Any]
_TokensOfState = frozenset[str]


class Token(str):
    """A piece of a text: of which terminal, and where it begins."""

    __slots__ = ("position", "type")

    type: str
    position: int


class Unexpected(Exception):
    """Where the parser cannot go on.

    `wanted` are the terminals that could have stood there, `found` is the token that stands there instead: None if
    there is none of any kind, an empty one at the end of the text.
    """

    def __init__(self, position: int, wanted: frozenset[str], found: str | None) -> None:
        super().__init__(position, wanted, found)
        self.position = position
        self.wanted = wanted
        self.found = found


class Part(NamedTuple):
    """What a symbol of a rule gives to the children of its node."""

    place: int
    spread: bool  # the symbol there is a list: its members are children
    absent: int  # how many optional symbols before it are not there, and are None


class Rule(NamedTuple):
    origin: str
    size: int
    method: str | None  # of the builder; None: the children as a list, which another rule spreads
    single: bool  # there is one child only, and it stands for itself
    parts: tuple[Part, ...] | None  # None: all symbols, as they are
    absent: int  # how many optional symbols at the end are not there


class _Reduction(NamedTuple):
    origin: str
    size: int
    action: _Action


def _action(rule: Rule, builder: object) -> _Action:
    """What makes a value of the values of a rule's symbols."""
    build: _Action | None = None if rule.method is None else getattr(builder, rule.method)
    parts, absent = rule.parts, rule.absent
    if rule.single:
        return itemgetter(0)

    def act(values: list[Any]) -> Any:
        if parts is not None:
            children: list[Any] = []
            for place, spread, missing in parts:
                if missing:
                    children += [None] * missing
                if not spread:
                    children.append(values[place])
                elif children:
                    children += values[place]
                else:  # of no use to anybody else; copying would take time by the square of the length
                    children = values[place]
            if absent:
                children += [None] * absent
            values = children
        return values if build is None else build(values)

    return act


class Parser:
    """One grammar with the builder of its nodes."""

    def __init__(self, tables: Mapping[str, Any], builder: object) -> None:
        """tables: as make_tables.py makes them. builder: has a method for every rule that makes a node."""
        self._patterns: dict[str, str] = dict(tables["terminals"])
        self._ignored: frozenset[str] = frozenset(tables["ignored"])
        self._starts: dict[str, list[int]] = tables["starts"]
        # By symbol: the state that comes next, or the reduction, counted from -1 downwards.
        self._states: list[dict[str, int]] = tables["states"]
        self._reductions = []
        for origin, size, method, single, parts, absent in tables["rules"]:
            made = None if parts is None else tuple(Part(*part) for part in parts)
            rule = Rule(origin, size, method, single, made, absent)
            self._reductions.append(_Reduction(origin, size, _action(rule, builder)))
        self._scanners: list[re.Pattern[str] | None] = [None] * len(self._states)
        self._scanner_of: dict[_TokensOfState, re.Pattern[str]] = {}

    def parse(self, text: str, start: str) -> Any:
        """What the builder made of the whole text; raises Unexpected, and whatever the builder raises."""
        state, end_state = self._starts[start]
        states = [state]
        values: list[Any] = []
        position = 0
        while True:
            scanner = self._scanners[state] or self._scanner(state)
            match = scanner.match(text, position)
            if match is not None:
                kind = match.lastgroup
                assert kind is not None
                if kind in self._ignored:
                    position = match.end()
                    continue
                token = Token(match[0])
                token.type = kind
                token.position = position
                position = match.end()
            elif position < len(text):
                raise self._nothing_fits(text, position, state)
            else:
                kind = END
            while True:
                step = self._states[state].get(kind)
                if step is None:
                    if kind is END:
                        raise Unexpected(position, self._terminals(state), "")
                    raise Unexpected(token.position, self._terminals(state), token)
                if step >= 0:
                    states.append(step)
                    values.append(token)
                    state = step
                    break
                origin, size, action = self._reductions[-step - 1]
                if size:
                    made = action(values[-size:])
                    del states[-size:], values[-size:]
                else:
                    made = action([])
                state = self._states[states[-1]][origin]
                states.append(state)
                values.append(made)
                if kind is END and state == end_state:
                    return made

    def _terminals(self, state: int) -> _TokensOfState:
        return frozenset(name for name in self._states[state] if name in self._patterns or name == END)

    def _alternatives(self, terminals: _TokensOfState) -> str:
        return "|".join(f"(?P<{name}>{form})" for name, form in self._patterns.items() if name in terminals)

    def _scanner(self, state: int) -> re.Pattern[str]:
        """What finds the next token in a state; the same for states that want the same."""
        terminals = self._terminals(state) - {END}
        made = self._scanner_of.get(terminals)
        if made is None:
            made = self._scanner_of[terminals] = re.compile(self._alternatives(terminals | self._ignored))
        self._scanners[state] = made
        return made

    @cached_property
    def _everywhere(self) -> re.Pattern[str]:
        """What finds a token of any kind."""
        return re.compile(self._alternatives(frozenset(self._patterns)))

    def _nothing_fits(self, text: str, position: int, state: int) -> Unexpected:
        """None of what may stand here does; perhaps something that may stand elsewhere."""
        elsewhere = self._everywhere.match(text, position)
        wanted = self._terminals(state) - {END}
        return Unexpected(position, wanted, None if elsewhere is None else elsewhere[0])


def shipped_tables() -> dict[str, Any]:
    """Those of this version's grammar."""
    tables: dict[str, Any] = json.loads(files(__package__).joinpath(TABLES_FILE).read_text("utf-8"))
    return tables
