"""The LALR parser: tokens, tables, and the loop that passes a text to a builder.

The tables are grammar.json, which make_tables.py creates from grammar.lark with the library Lark. They are stored,
because creating them takes a tenth of a second, and importing Lark takes as long again; loading them takes a
millisecond. So nothing is prepared in advance, and a process without expressions has no cost.

The lexer is contextual: in each state of the parser, it tries only the terminals that are allowed there. The regular
expression for them is compiled when the parser first enters such a state.

Several threads may parse at once: in the worst case they create shared objects twice, with the same content.
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
    """A token of a text: its terminal and its position."""

    __slots__ = ("position", "type")

    type: str
    position: int


class Unexpected(Exception):
    """A position at which the parser cannot continue.

    `wanted`: the terminals that are allowed there. `found`: the token that is there instead, None if the text is not a
    token, "" at the end of the text.
    """

    def __init__(self, position: int, wanted: frozenset[str], found: str | None) -> None:
        super().__init__(position, wanted, found)
        self.position = position
        self.wanted = wanted
        self.found = found


class Part(NamedTuple):
    """The children that a symbol of a rule adds to the rule's node."""

    place: int
    spread: bool  # the symbol is a list, whose members are the children
    absent: int  # number of absent optional symbols before it; each becomes None


class Rule(NamedTuple):
    origin: str
    size: int
    method: str | None  # of the builder; None: the children as a list, which another rule spreads
    single: bool  # the rule has one child, which is its value
    parts: tuple[Part, ...] | None  # None: all symbols, unchanged
    absent: int  # number of absent optional symbols at the end


class _Reduction(NamedTuple):
    origin: str
    size: int
    action: _Action


def _action(rule: Rule, builder: object) -> _Action:
    """Return the function that makes the value of a rule from the values of its symbols."""
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
                else:  # the list has no other user; copying it repeatedly would take quadratic time
                    children = values[place]
            if absent:
                children += [None] * absent
            values = children
        return values if build is None else build(values)

    return act


class Parser:
    """A parser for one grammar, with the builder of its nodes."""

    def __init__(self, tables: Mapping[str, Any], builder: object) -> None:
        """tables: as created by make_tables.py. builder: has a method for every rule that makes a node."""
        self._patterns: dict[str, str] = dict(tables["terminals"])
        self._ignored: frozenset[str] = frozenset(tables["ignored"])
        self._starts: dict[str, list[int]] = tables["starts"]
        # By symbol: the next state, or the reduction, counted from -1 downwards.
        self._states: list[dict[str, int]] = tables["states"]
        self._reductions = []
        for origin, size, method, single, parts, absent in tables["rules"]:
            made = None if parts is None else tuple(Part(*part) for part in parts)
            rule = Rule(origin, size, method, single, made, absent)
            self._reductions.append(_Reduction(origin, size, _action(rule, builder)))
        self._scanners: list[re.Pattern[str] | None] = [None] * len(self._states)
        self._scanner_of: dict[_TokensOfState, re.Pattern[str]] = {}

    def parse(self, text: str, start: str) -> Any:
        """Return the builder's value for the whole text. Raises Unexpected, and exceptions of the builder."""
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
        """The regular expression for the next token in a state. States with the same terminals share it."""
        terminals = self._terminals(state) - {END}
        made = self._scanner_of.get(terminals)
        if made is None:
            made = self._scanner_of[terminals] = re.compile(self._alternatives(terminals | self._ignored))
        self._scanners[state] = made
        return made

    @cached_property
    def _everywhere(self) -> re.Pattern[str]:
        """The regular expression for a token of any kind."""
        return re.compile(self._alternatives(frozenset(self._patterns)))

    def _nothing_fits(self, text: str, position: int, state: int) -> Unexpected:
        """The error for a position at which no allowed terminal matches. Another terminal may match there."""
        elsewhere = self._everywhere.match(text, position)
        wanted = self._terminals(state) - {END}
        return Unexpected(position, wanted, None if elsewhere is None else elsewhere[0])


def shipped_tables() -> dict[str, Any]:
    """The tables of this version's grammar."""
    tables: dict[str, Any] = json.loads(files(__package__).joinpath(TABLES_FILE).read_text("utf-8"))
    return tables
