"""An expression's canonical text: it parses to the same tree, and needless parentheses leave no trace."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.expressions.syntax import (
    And,
    BeginsWith,
    Between,
    Binary,
    Call,
    Compare,
    EndsWith,
    Field,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Pattern,
    Unary,
)
from amps.expressions.text import text_of
from tests.support.expressions import parsed, same


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a=1", "/a == 1"),
        ('( "x" <> [/a] )', "'x' != /a"),
        ("/a not in (1,2)", "NOT /a IN (1, 2)"),
        ("(/a OR /b) AND /c", "(/a OR /b) AND /c"),
        ("/a - (/b - 1)", "/a - (/b - 1)"),
        ("(/a - /b) - 1", "/a - /b - 1"),
        ("-(-/a)", "-(-/a)"),
        ("(/a = 1) = 1", "(/a == 1) == 1"),
        ("NOT (/a AND /b)", "NOT (/a AND /b)"),
        ("'it\\'s \\x00\\n\\\\ü'", "'it\\'s \\x00\\x0a\\\\\\xc3\\xbc'"),
        ('/a LIKE "it\'s"', '/a LIKE "it\'s"'),
        ('/a LIKE "it\'s \\"x\\""', "/a LIKE 'it\\'s \"x\"'"),
        ("/a LIKE r'C++'", "/a LIKE r'C++'"),
        ("[t]./a [1] OF previous", "[t]./a[1] OF PREVIOUS"),
        ("1e999 + 2E3 + 1.50", "1e999 + 2000.0 + 1.5"),
    ],
)
def test_text_of(text: str, canonical: str) -> None:
    assert text_of(parsed(text)) == canonical
    assert same(parsed(canonical), parsed(text))


NAME = st.text(string.ascii_letters + string.digits + "_-.:éß", min_size=1, max_size=6)
ODD_NAME = st.text(st.characters(exclude_characters="]/", exclude_categories=["Cs"]), min_size=1, max_size=6)
SUBSCRIPT = st.none() | st.integers(0, 2**24 - 1)


@st.composite
def plain_paths(draw: st.DrawFn) -> tuple[bytes | int, ...]:
    steps: list[bytes | int] = []
    for last in draw(st.lists(st.just(False), max_size=3).map(lambda steps: [*steps, True])):
        steps.append((draw(st.sampled_from(["", "@"])) + draw(NAME)).encode())
        if not last and (subscript := draw(SUBSCRIPT)) is not None:
            steps.append(subscript)
    return tuple(steps)


PATHS = plain_paths() | st.lists(ODD_NAME, min_size=1, max_size=3).map(
    lambda names: tuple(name.encode() for name in names)
)
QUALIFIERS = st.lists(
    st.text(st.characters(exclude_characters="]", exclude_categories=["Cs"]), min_size=1, max_size=5),
    max_size=2,
).map(tuple)
FIELDS = st.builds(Field, PATHS, SUBSCRIPT, QUALIFIERS, st.sampled_from([None, "CURRENT", "PREVIOUS"]))
LITERALS = st.one_of(
    st.none(), st.integers(0, 2**64 - 1), st.floats(0, allow_nan=False), st.binary(max_size=8)
).map(Literal)
CONTENT = st.text(string.ascii_letters + "()[]{}.*+?^$|\\ \t\n\x00'\"é", max_size=8)


@st.composite
def patterns(draw: st.DrawFn) -> tuple[bytes, bool]:
    """Patterns that can be written in an expression, parsed from quoted literals."""
    quote = draw(st.sampled_from(["'", '"']))
    content = draw(CONTENT)
    if draw(st.booleans()):
        return content.replace(quote, "").encode(), True
    escaped = content.replace("\\", "\\\\").replace(quote, "\\" + quote)
    pattern = parsed(f"/a LIKE {quote}{escaped}{quote}")
    assert isinstance(pattern, Like)
    return pattern.pattern, False


def extended(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(nodes, min_size=1, max_size=3).map(tuple)

    def chains(kind: type[And] | type[Or]) -> st.SearchStrategy[Node]:
        part = nodes.filter(lambda node: not isinstance(node, kind))
        return st.lists(part, min_size=2, max_size=4).map(lambda parts: kind(tuple(parts)))

    return st.one_of(
        st.builds(Unary, st.sampled_from("+-"), nodes),
        st.builds(Binary, st.sampled_from("+-*/%"), nodes, nodes),
        st.builds(Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), nodes, nodes),
        st.builds(Between, nodes, nodes, nodes),
        st.builds(In, nodes, some),
        st.builds(BeginsWith, nodes, some),
        st.builds(EndsWith, nodes, some),
        st.builds(lambda value, pattern: Like(value, *pattern), nodes, patterns()),
        st.builds(IsNull, nodes),
        st.builds(IsNan, nodes),
        st.builds(Not, nodes),
        chains(And),
        chains(Or),
        st.builds(Call, st.sampled_from(["F", "IF", "MOD", "A_1"]), st.lists(nodes, max_size=3).map(tuple)),
        st.builds(lambda value, pattern: Call("REGEXP_MATCH", (value, Pattern(*pattern))), nodes, patterns()),
    )


TREES: st.SearchStrategy[Node] = st.recursive(FIELDS | LITERALS, extended, max_leaves=12)


@given(TREES)
def test_the_text_parses_to_the_same_tree(tree: Node) -> None:
    text = text_of(tree)
    again = parsed(text)
    assert same(again, tree)
    assert text_of(again) == text


@given(TREES, st.sampled_from([" ", "\n", "\t  "]))
def test_needless_parentheses_change_nothing(tree: Node, blank: str) -> None:
    assert same(parsed(f"{blank}(({blank}{text_of(tree)}{blank})){blank}"), tree)
