"""Hostile expressions fail cleanly, large ones work, and both take time in proportion to their length."""

import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest

from amps.expressions import ExpressionError, compile_expression
from amps.expressions.parser import DEPTH_MAX, TEXT_BYTES_MAX, parse_expression
from amps.expressions.syntax import In, Node, Or, fold
from amps.expressions.tokens import STEPS_MAX


def refused(text: str | bytes) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    return caught.value


# Each makes an expression with that many levels.
NESTINGS: dict[str, Callable[[int], str]] = {
    "parentheses": lambda depth: "(" * (depth - 1) + "/a" + ")" * (depth - 1),
    "negations": lambda depth: "NOT " * (depth - 1) + "/a",
    "sums": lambda depth: "/a" + " + 1" * (depth - 1),
    "products": lambda depth: "/a" + " * 2" * (depth - 1),
    "differences": lambda depth: "1 - (" * (depth - 1) + "/a" + ")" * (depth - 1),
    "signs": lambda depth: "-(" * (depth - 1) + "/a" + ")" * (depth - 1),
    "calls": lambda depth: "ABS(" * (depth - 1) + "/a" + ")" * (depth - 1),
    "conditionals": lambda depth: "IF(/b, 1, " * (depth - 1) + "/a" + ")" * (depth - 1),
    "lists": lambda depth: "/b IN (" * (depth - 1) + "/a" + ")" * (depth - 1),
    "comparisons": lambda depth: "/a" + " = 1" * (depth - 1),
    "tests": lambda depth: "/a" + " IS NULL" * (depth - 1),
    "chains": lambda depth: "/b OR (/c AND (" * ((depth - 1) // 2) + "/a" + "))" * ((depth - 1) // 2),
}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_depth_within_the_limit(nesting: str) -> None:
    """Depth 1,000 works, and Python's stack does not grow with it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        expression = compile_expression(NESTINGS[nesting](DEPTH_MAX - 1))
        text = expression.canonical
    finally:
        sys.setrecursionlimit(limit)
    assert compile_expression(text).canonical == text


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("depth", [DEPTH_MAX + 2, 10 * DEPTH_MAX])
def test_depth_beyond_the_limit(nesting: str, depth: int) -> None:
    assert refused(NESTINGS[nesting](depth)).reason == "the expression is nested more than 1000 deep"


def test_parentheses_side_by_side_are_not_nested() -> None:
    compile_expression(" OR ".join(["(/a)"] * (2 * DEPTH_MAX)))


@pytest.mark.parametrize(
    "member", ["'(", '"(', r"'\'(", r"'\\('.(", "r'(", 'r"(', r"R'\'.(", "/a IN ('('),'("]
)
def test_parentheses_in_strings_do_not_count(member: str) -> None:
    quote = '"' if '"' in member else "'"
    if "." in member:  # a string that ends, and one that begins
        before, after = member.split(".")
        member = f"{before},{quote}{after}"
    compile_expression(f"/a IN ({', '.join([member + quote] * (2 * DEPTH_MAX))})")


def test_parentheses_in_strings_after_keywords_that_end_with_r_do_not_count() -> None:
    r"""In OR'\'' the R does not make the string a raw one, which would end at the second quote."""
    compile_expression("/a" + r" OR'\''+'('" * (3 * DEPTH_MAX))


def test_parentheses_in_names_do_not_count() -> None:
    compile_expression(" OR ".join(["[/a (b]"] * (2 * DEPTH_MAX)))


@pytest.mark.parametrize(
    "text",
    ["(" * (TEXT_BYTES_MAX - 1), "NOT " * (TEXT_BYTES_MAX // 40), "[" * TEXT_BYTES_MAX, "-" * TEXT_BYTES_MAX],
)
def test_nesting_that_never_ends(text: str) -> None:
    assert refused(text).reason


def test_longest_text() -> None:
    text = "/a = '" + "x" * (TEXT_BYTES_MAX - 7) + "'"
    assert len(text) == TEXT_BYTES_MAX
    compile_expression(text)
    assert "1048577 bytes long, 1048576 are allowed" in refused(text + " ").reason


def test_length_counts_bytes() -> None:
    text = "/a = '" + "ü" * (TEXT_BYTES_MAX // 2) + "'"
    assert len(text) < TEXT_BYTES_MAX
    assert "bytes long" in refused(text).reason
    assert "bytes long" in refused(text.encode()).reason


def test_ten_thousand_terms_are_one_level() -> None:
    root = parse_expression(" OR ".join(f"/a = {number}" for number in range(10_000)))
    assert isinstance(root, Or)
    assert len(root.parts) == 10_000
    assert root.depth == 3


def test_ten_thousand_members() -> None:
    root = parse_expression(f"/a IN ({','.join(map(str, range(10_000)))})")
    assert isinstance(root, In)
    assert len(root.members) == 10_000


def growth(make: Callable[[int], str], small: int) -> float:
    """The growth of peak memory when an expression eight times as large is compiled."""
    peaks = []
    for size in (small, 8 * small):
        text = make(size)
        tracemalloc.start()
        try:
            compile_expression(text)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return peaks[1] / peaks[0]


def seconds(make: Callable[[int], str], size: int) -> float:
    """The CPU time of the fastest of three calls."""
    text = make(size)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        compile_expression(text).canonical  # noqa: B018 - made here
        best = min(best, time.process_time() - start)
    return best


LARGE: dict[str, Callable[[int], str]] = {
    "alternatives": lambda size: " OR ".join(f"/a = {number}" for number in range(size)),
    "fields": lambda size: " AND ".join(f"/f{number} = 'x'" for number in range(size)),
    "members": lambda size: f"/a IN ({','.join(map(str, range(size)))})",
    "string": lambda size: "/a = '" + "\\x41" * size + "'",
    "pattern": lambda size: "/a LIKE '" + "ab" * size + "'",
    "blanks": lambda size: " " * size * 10 + "/a" + " " * size * 10 + "= 1" + "\n" * size * 10,
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_expressions_are_not_quadratic(kind: str) -> None:
    """16 times the size takes about 16 times the processor time. Quadratic would be 256 times."""
    small = seconds(LARGE[kind], 125)
    large = seconds(LARGE[kind], 2000)
    assert large < 80 * small


@pytest.mark.parametrize("kind", LARGE)
def test_large_expressions_take_memory_in_proportion(kind: str) -> None:
    assert growth(LARGE[kind], 100) < 16


def test_field_with_too_many_steps() -> None:
    compile_expression("/a" * STEPS_MAX + " = 1")
    assert "has 1001 steps" in refused("/a" * (STEPS_MAX + 1)).reason
    assert "has 1001 steps" in refused("[" + "/a" * (STEPS_MAX + 1) + "]").reason
    assert "has 1001 steps" in refused("/a[1]" * (STEPS_MAX // 2) + "/a").reason


def test_fold_goes_from_the_leaves_up_and_from_left_to_right() -> None:
    order: list[str] = []

    def combine(node: Node, below: list[str]) -> str:
        order.append(type(node).__name__)
        return f"{type(node).__name__}({', '.join(below)})"

    made = fold(parse_expression("/a IN (1, -2) AND NOT 'x'"), combine)
    assert made == "And(In(Field(), Literal(), Unary(Literal())), Not(Literal()))"
    assert order == ["Field", "Literal", "Literal", "Unary", "In", "Literal", "Not", "And"]
