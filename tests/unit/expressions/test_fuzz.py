"""Arbitrary expressions cause no crash and no hang. Each one is compiled, or refused with an ExpressionError."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps.expressions import ExpressionError, compile_expression
from tests.support.expressions import delivers, evaluate

EXAMPLES = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SEEDS = [
    b"/a = 1 AND NOT (/b/c[1] >= -2.5e1 OR [/my field] LIKE '(?i)^x.*$')",
    b"IF(/a IS NOT NULL, CONCAT(/a, '-', \"b\\x41\\101\"), NULL) NOT IN (1, 'x', r'C++')",
    b"/d BETWEEN 1 AND /a + 3 MOD 2 AND /s NOT BEGINS WITH ('a', 'b')",
    b"SUBSTR(/s, -2, 1) <> REGEXP_REPLACE(/s, '([a-z])+', '\\1$1') OR (/a / 0) IS NAN",
    b"[t].[/x] + /q OF PREVIOUS >= UNIX_TIMESTAMP() AS /y HINT OPTIONAL, SET_CURRENT",
]
PIECES = [
    b"(",
    b")",
    b"'",
    b'"',
    b"\\",
    b"/",
    b"[",
    b"]",
    b"@",
    b" AND ",
    b" OR ",
    b"NOT ",
    b" IN ",
    b" LIKE ",
    b"r'",
    b",",
]
PIECES += [
    b" BETWEEN ",
    b" IS NULL",
    b"IF(",
    b"1",
    b"1e",
    b".",
    b"-",
    b"%",
    b" OF ",
    b" AS ",
    b"\0",
    b"\xff",
    b"\xc3",
    b"$",
    b"{{",
]
PIECES += [
    b"/a",
    b"/a[",
    b"[/",
    b"[0]",
    b"COUNT(*)",
    b"SUM(",
    b"999999999999999999999",
    b"1e99999",
    b"\n",
    b"--",
    b"'(((",
    b"=",
    b"<>",
]


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes], pieces: Sequence[bytes]) -> bytes:
    """A valid expression with a few changes."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(text)))
        until = min(len(text), at + draw(st.integers(0, 8)))
        match draw(st.sampled_from(["cut", "insert", "replace", "double", "end"])):
            case "cut":
                text = text[:at] + text[until:]
            case "insert":
                text = text[:at] + draw(st.sampled_from(pieces)) + text[at:]
            case "replace":
                text = text[:at] + draw(st.binary(max_size=3)) + text[until:]
            case "double":
                text = text[:until] + text[at:]
            case "end":
                text = text[:at]
    return text


def compiles_or_is_refused(text: bytes | str) -> None:
    refused: ExpressionError | None = None
    try:
        expression = compile_expression(text)
    except ExpressionError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.position <= len(text)
        assert refused.reason
        assert str(refused)
        return
    for message in (b"{}", b'{"a":1,"b":{"c":[1,2]},"s":"abcab","d":[1,"x"]}'):
        assert isinstance(delivers(expression, message), bool)
        evaluate(expression, message)
    assert compile_expression(text).canonical == expression.canonical


@EXAMPLES
@given(mutated(SEEDS, PIECES))
def test_mutated_expressions_compile_or_are_refused(text: bytes) -> None:
    compiles_or_is_refused(text)


@EXAMPLES
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60),
        st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join),
    )
)
@example(b"")
@example("")
@example(" ")
@example("\ud800")
@example("'\U0010ffff' = 'é'")
def test_random_expressions_compile_or_are_refused(text: bytes | str) -> None:
    compiles_or_is_refused(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(" * 100_000, id="opening parentheses"),
        pytest.param("(" * 100_000 + "1" + ")" * 100_000, id="parentheses"),
        pytest.param("NOT " * 100_000 + "1", id="NOT"),
        pytest.param("ABS(" * 100_000 + "1" + ")" * 100_000, id="calls"),
        pytest.param("-(" * 100_000 + "1" + ")" * 100_000, id="signs"),
        pytest.param("1 IN (" * 50_000 + "1" + ")" * 50_000, id="IN"),
        pytest.param("IF(1," * 50_000 + "1" + ",0)" * 50_000, id="IF"),
        pytest.param("'" + "x" * (1 << 21), id="string without end"),
        pytest.param("1 = 1" + " " * (1 << 21), id="blanks"),
        pytest.param("/" + "a" * (1 << 21), id="name"),
    ],
)
def test_too_deep_and_too_long_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" AND ".join(["1 = 1"] * 10_000), id="AND"),
        pytest.param(" OR ".join(["1 = 2"] * 10_000 + ["1"]), id="OR"),
        pytest.param("1 IN (" + ",".join(map(str, range(10_000))) + ")", id="IN"),
        pytest.param("(" * 900 + "1" + ")" * 900, id="parentheses"),
        pytest.param("NOT " * 900 + "1", id="NOT"),
        pytest.param("ABS(" * 900 + "1" + ")" * 900, id="calls"),
    ],
)
def test_within_the_limits_is_accepted(text: str) -> None:
    assert delivers(text)
