"""Creates grammar.json, the tables of the parser, from grammar.lark.

    python -m amps.expressions.make_tables

Run it after a change of the grammar; a test detects outdated tables. This is the only module that needs Lark. Lark
calculates the LALR table, converts optional and repeated symbols to plain rules, and determines the order in which
terminals are tried. The result is written in the terms of lalr.py, with states in the order in which they are reached,
so that the same grammar gives the same file.
"""

import json
from pathlib import Path
from typing import Any, Final

from lark import Lark
from lark.grammar import Rule as LarkRule
from lark.grammar import Terminal
from lark.lexer import BasicLexer, ContextualLexer
from lark.parsers.lalr_analysis import Shift

from amps.expressions.lalr import TABLES_FILE, Part, Rule

STARTS: Final = ("expression", "field_constructor")

_HERE = Path(__file__).parent


def make(grammar: str) -> dict[str, Any]:
    """The tables of a grammar."""
    lark = Lark(grammar, parser="lalr", lexer="contextual", start=list(STARTS), maybe_placeholders=True)
    table = lark.parser.parser._parse_table
    lexer = lark.parser.lexer
    assert isinstance(lexer, ContextualLexer)
    everywhere = lexer.root_lexer
    assert isinstance(everywhere, BasicLexer)

    order = [table.start_states[start] for start in STARTS]
    for state in order:  # the loop appends to it
        targets = {str(symbol): step for symbol, (kind, step) in table.states[state].items() if kind is Shift}
        order += [step for _, step in sorted(targets.items()) if step not in order]
    number = {state: place for place, state in enumerate(order)}

    rules = sorted({_rule(rule) for rule in lark.rules}, key=repr)
    states = []
    for state in order:
        row = {
            str(symbol): number[step] if kind is Shift else -rules.index(_rule(step)) - 1
            for symbol, (kind, step) in table.states[state].items()
        }
        states.append(dict(sorted(row.items())))
    # A terminal that is a fixed text takes precedence over a pattern that also matches it, where both are allowed.
    assert not any({"EVERYTHING", "ARITHMETIC"} <= row.keys() for row in states)
    return {
        "starts": {
            start: [number[table.start_states[start]], number[table.end_states[start]]] for start in STARTS
        },
        "ignored": sorted(everywhere.ignore_types),
        "terminals": [[terminal.name, terminal.pattern.to_regexp()] for terminal in everywhere.terminals],
        "rules": rules,
        "states": states,
    }


def _rule(rule: LarkRule) -> Rule:
    origin = str(rule.origin.name)
    method = str(rule.alias) if rule.alias else origin
    empty = _places_left_empty(rule)
    parts: list[Part] = []
    absent = 0
    for index, symbol in enumerate(rule.expansion):
        absent += empty[index]
        if isinstance(symbol, Terminal) and symbol.filter_out:
            continue
        parts.append(Part(index, not symbol.is_term and str(symbol.name).startswith("_"), absent))
        absent = 0
    absent += empty[-1]
    single = bool(rule.options.expand1 and not rule.alias)
    assert not single or len(rule.expansion) == 1, f"a rule of {origin} with several children has no name"
    as_they_are = [Part(index, False, 0) for index in range(len(rule.expansion))]
    return Rule(
        origin,
        len(rule.expansion),
        None if single or method.startswith("_") else method,
        single,
        None if parts == as_they_are and not absent else tuple(parts),
        absent,
    )


def _places_left_empty(rule: LarkRule) -> list[int]:
    """The numbers of absent optional symbols before each symbol of a rule, and at its end."""
    counts = [0]
    for is_empty in rule.options.empty_indices:
        if is_empty:
            counts[-1] += 1
        else:
            counts.append(0)
    return counts + [0] * (len(rule.expansion) + 1 - len(counts))


def text_of(tables: dict[str, Any]) -> str:
    """The content of grammar.json: a line for each entry."""
    blocks = []
    for name, value in tables.items():
        entries = value.items() if isinstance(value, dict) else value
        if isinstance(value, dict):
            lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries]
        else:
            lines = [json.dumps(entry, separators=(",", ":")) for entry in entries]
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        blocks.append(f'"{name}": {opening}\n' + ",\n".join(lines) + f"\n{closing}")
    return "{" + ",\n".join(blocks) + "}\n"


def main() -> None:
    grammar = (_HERE / "grammar.lark").read_text("utf-8")
    (_HERE / TABLES_FILE).write_text(text_of(make(grammar)), "utf-8")


if __name__ == "__main__":
    main()
