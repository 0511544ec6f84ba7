"""Constants of a list and plain comparisons, which the grammar reads in one piece, give the trees of their parts.

A part in parentheses is read by itself, and parentheses leave no node.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.expressions import ExpressionError
from amps.expressions.syntax import Compare, Field, In, Literal, Node, fold
from tests.support.expressions import parsed, same

blanks = st.text("\t\n\r \f\v", max_size=2)
numbers = st.from_regex(r"\A[0-9]{1,25}(\.[0-9]{1,5})?([eE][-+]?[0-9]{1,2})?\Z")
strings = st.one_of(
    st.from_regex(r"""\A'([^'\\]|\\(.|\n))*'\Z"""),
    st.from_regex(r"""\A"([^"\\]|\\(.|\n))*"\Z"""),
    st.sampled_from(["','", r"'\','", "'/a = 1'", "' AND '", r'"\""', "''"]),
).filter(lambda text: all(not 0xD800 <= ord(character) < 0xDC80 for character in text))
others = st.sampled_from(
    ["/b", "NULL", "-5", "+1", "r'x'", "1 + 2", "5 - 1", "(7)", "F(1, 2)", "/b = 1", "'x' LIKE 'y'", "NOT /b"]
)
fields = st.sampled_from(
    ["/a", "/a/b", "/@a", "/a-1", "/a.b:c", "/\u00a0x", "/\u2028", "/a[1]", "[/a b]", "/1/2"]
)
operators = st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">="])


def positions(root: Node) -> list[int]:
    found: list[int] = []
    fold(root, lambda node, below: found.append(node.position))
    return found


@given(
    st.lists(st.tuples(blanks, st.one_of(numbers, strings, others), blanks), min_size=1, max_size=30),
    st.sampled_from(["IN", "BEGINS WITH", "ENDS WITH"]),
)
def test_lists(members: list[tuple[str, str, str]], operator: str) -> None:
    try:
        apart = parsed(f"/a {operator} ({','.join(f'({member})' for _, member, _ in members)})")
    except ExpressionError:
        return  # a string whose bytes are not UTF-8
    together = parsed(f"/a {operator} ({','.join(map(''.join, members))})")
    assert same(together, apart)


@given(fields, blanks, operators, blanks, st.one_of(numbers, strings, others), blanks)
def test_comparisons(field: str, before: str, operator: str, between: str, value: str, after: str) -> None:
    apart = parsed(f"({field}) {operator} ({value}) OR /z")
    text = f"{field}{before}{operator}{between}{value}{after}"
    if value not in ("/b = 1", "'x' LIKE 'y'", "NOT /b"):  # without parentheses this is another expression
        assert same(parsed(f"{text} OR /z"), apart)
        assert same(parsed(f"F({text}, 1)"), parsed(f"F(({field}) {operator} ({value}), 1)"))


@pytest.mark.parametrize(
    "text",
    [
        "/a = 1 + 2",
        "/a = 1 = 2",
        "/a = 1 IS NULL",
        "/a = 1 AND /b = 2 OR NOT /c = 'x'",
        "/a BETWEEN 1 AND /b = 2",
        "1 + /a = 2 AND /b",
        "/a = 'x' LIKE 'y'",
        "(/a = 1) + 1",
        "/a = 1ANd/b=2oR/c=3",
        "/a*/c = 2",
        "-/a = 2",
        "/a = 5 / 2",
    ],
)
def test_parts_of_larger_expressions(text: str) -> None:
    """Blanks before an operator belong to neither side. A field with a subscript is never read in one piece."""
    assert repr(parsed(text)) == repr(parsed(text.replace("/a", "/a[0]"))).replace(
        "element=0", "element=None"
    )


def test_places() -> None:
    members = ", ".join(f"'{number}'" for number in range(10))
    text = f"/a = 5 AND /b  <>\n'x' OR /c IN ({members}, 11)"
    assert positions(parsed(text)) == [0, 5, 3, 11, 18, 15, 3, 25, *range(32, 82, 5), 82, 28, 3]
    found = parsed(f"/c IN ({members}, 11)")
    assert isinstance(found, In)
    assert [member.position for member in found.members] == [*range(7, 57, 5), 57]
    compared = parsed("/abc  >=  'x'")
    assert isinstance(compared, Compare)
    assert (compared.position, compared.left.position, compared.right.position) == (6, 0, 10)


def test_a_string_in_a_pattern_place_keeps_its_notation() -> None:
    """A string read in one piece may be the pattern of a function."""
    found = parsed(r"/a IN ('\\d', '2', '3', '4', '5', '6', '7', '8', '9', '\\d')")
    assert isinstance(found, In)
    first, *_, last = found.members
    assert isinstance(first, Literal)
    assert isinstance(last, Literal)
    assert first.written == last.written == r"'\\d'"
    assert first.value == last.value == rb"\d"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("/a IN (1,2,3,4,5,6,7,8,9,)", 25),
        ("/a IN (1,2,3,4,5,6,7,8,,9)", 23),
        ("/a IN (1,2,3,4,5,6,7,8,9", 24),
        ("/a IN (1,2,3,4,5,6,7,8,'x)", 23),
        ("/a 1,2,3,4,5,6,7,8,9", 3),
        ("/b + /a = 1 /c = 2", 12),
        ("/a = 1 /c = 2", 7),
        ("/a = 1.", 6),
        ("/a = 5e", 6),
        ("/a = 'x", 5),
    ],
)
def test_faults_are_where_they_were(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as refusal:
        parsed(text)
    assert refusal.value.position == position


def test_a_plain_comparison_of_a_long_path() -> None:
    path = "/x" * 1001
    with pytest.raises(ExpressionError, match="1001 steps"):
        parsed(f"{path} = 1")
    found = parsed(f"{'/x' * 1000} = 1")
    assert isinstance(found, Compare)
    assert isinstance(found.left, Field)
    assert len(found.left.path) == 1000
