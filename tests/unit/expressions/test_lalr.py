"""The parser's tables are those of the grammar, and parse as in Lark, which made them."""

import random
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from itertools import chain
from threading import Barrier, Thread
from typing import Any

import pytest
from lark import Lark, Token, Tree, UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from amps.expressions import make_tables
from amps.expressions import parser as parser_module
from amps.expressions.lalr import TABLES_FILE, Parser, Unexpected, shipped_tables
from amps.expressions.parser import parse_expression
from amps.expressions.text import text_of
from tests.support.server import package_path

GRAMMAR = files("amps.expressions").joinpath("grammar.lark").read_text("utf-8")
WORDS = tuple(
    word
    for line in (
        "/a /b/c[0] /a-b [/x_y] [t]./a 1 2.5e3 'x' \"y\" r'z' NULL NOT AND or IN ( ) , BETWEEN LIKE BEGINS WITH IS NAN",
        "OF CURRENT AS HINT OPTIONAL SET_CURRENT + - * / % MOD = <> <= COUNT LENGTH( IF( ' r' [ $ é /é 1,2,3,4,5,6,7,8",
    )
    for word in line.split(" ")
)
TEXTS = (
    "/a = 1 AND /b > 2 OR NOT /c IN (1, 2, /d)",
    "NOT (-(/a[0] + 1) * /b % 2 <> F(/c, r'x', NULL) IS NOT NAN)",
    "/e OF CURRENT NOT LIKE 'y' AND 5 BETWEEN 1 AND /f",
    "/g IN ((1), 2, 'x', 3, 4, 5, 6, 7, 8, 9, 10, /h) AND [/h] NOT BEGINS WITH ('z')",
    "/i ENDS WITH (+'z') OR G() = COUNT(*)",
    "CONCAT(/a, /b) AS /c HINT OPTIONAL, SET_CURRENT",
    "/a + 1 AS /b",
)


class Branches:
    """A builder that makes a tree of any nodes."""

    def __getattr__(self, name: str) -> Callable[[list[Any]], Any]:
        return lambda children: (name, *children)


def branches(node: Any) -> Any:
    """Lark's tree in the same form."""
    if isinstance(node, Tree):
        return (str(node.data), *map(branches, node.children))
    return str(node) if isinstance(node, Token) else node


def texts() -> list[str]:
    choose = random.Random(4)
    made = list(TEXTS)
    for _ in range(700):
        words = choose.choice(TEXTS).split() if choose.random() < 0.7 else []
        for _ in range(choose.randint(1, 4)):
            words.insert(choose.randint(0, len(words)), choose.choice(WORDS))
        made.append(choose.choice((" ", "")).join(words))
    return made


@pytest.fixture(scope="module")
def lark() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", start=list(make_tables.STARTS))


@pytest.mark.parametrize("start", make_tables.STARTS)
def test_texts_are_parsed_as_by_lark(lark: Lark, start: str) -> None:
    ours = Parser(shipped_tables(), Branches())
    read = refused = 0
    for text in texts():
        try:
            expected: Any = branches(lark.parse(text, start=start))
            read += 1
        except UnexpectedInput as error:
            at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
            expected = (
                len(text) if at_end else error.pos_in_stream,
                error.allowed if isinstance(error, UnexpectedCharacters) else set(error.expected),
                None if isinstance(error, UnexpectedCharacters) else str(error.token),
            )
            refused += 1
        try:
            found = ours.parse(text, start)
        except Unexpected as error:
            found = (error.position, error.wanted, error.found)
        assert found == expected, text
    assert read > 20
    assert refused > 400


def test_the_tables_are_those_of_the_grammar() -> None:
    shipped = files("amps.expressions").joinpath(TABLES_FILE).read_text("utf-8")
    assert shipped == make_tables.text_of(make_tables.make(GRAMMAR)), (
        "the grammar has changed: run python -m amps.expressions.make_tables"
    )


@pytest.mark.parametrize(
    "code",
    [
        "import amps.client, amps.cli.main, amps.server.main, amps.server.supervisor",
        "from amps.expressions import compile_expression as c; c('/a > 1'); c('LENGTH(/a) IN (1, /b)')",
    ],
)
def test_nothing_needs_lark(code: str) -> None:
    """Lark is needed only to change the grammar."""
    subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.modules['lark'] = None; {code}"],
        env={"PYTHONPATH": package_path()},
        check=True,
    )


def test_threads_may_make_the_parser_at_once() -> None:
    parser_module._parser.cache_clear()
    together = Barrier(4)
    canonical: list[list[str]] = []

    def parse_all() -> None:
        together.wait()
        canonical.append([text_of(parse_expression(text)) for text in TEXTS[:4]])

    threads = [Thread(target=parse_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(canonical) == 4
    assert len(set(chain.from_iterable(canonical))) == len(set(canonical[0])) == 4
