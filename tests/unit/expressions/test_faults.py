"""Refused expressions (2.1, 14.7): every refusal names a reason and a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.expressions import ExpressionError, Usage, compile_expression
from amps.expressions.syntax import (
    fold,
)
from tests.support.expressions import parsed


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "the expression ends where a field, a literal or a function is expected"),
        ("  ", 2, "the expression ends where"),
        ("/qty =", 6, "the expression ends where"),
        ("/a = (", 6, "the expression ends where"),
        ("(/a", 3, "a parenthesis is not closed"),
        ("/a IN (1", 8, "a parenthesis is not closed"),
        ("F(1", 3, "a parenthesis is not closed"),
        ("/a)", 2, "there is no '(' for this ')'"),
        ("/a = 1)", 6, "there is no '(' for this ')'"),
        ("()", 1, "')' stands where a field"),
        ("/a IN ()", 7, "')' stands where a field"),
        ("/a IN (1,)", 9, "')' stands where a field"),
        ("/a IN 5", 6, "a list in parentheses must follow IN"),
        ("/a BEGINS WITH 'x'", 15, "a list in parentheses must follow WITH"),
        ("/a BEGINS ('x')", 10, "'(' stands where WITH is expected"),
        ("/a LIKE /b", 8, "the pattern of LIKE must be a quoted literal"),
        ("/a LIKE ('b')", 8, "the pattern of LIKE must be a quoted literal"),
        ("/a LIKE 5", 8, "the pattern of LIKE must be a quoted literal"),
        ("REGEXP_MATCH(/a, /b)", 17, "the pattern of REGEXP_MATCH must be a quoted literal"),
        (
            "REGEXP_REPLACE(/a, CONCAT('a'), 'b')",
            19,
            "the pattern of REGEXP_REPLACE must be a quoted literal",
        ),
        ("REGEXP_MATCH(/a, 5)", 17, "the pattern of REGEXP_MATCH must be a quoted literal"),
        ("/a = 'x", 5, "this string is not closed"),
        ("/a = \"x'", 5, "this string is not closed"),
        ("/a = r'x", 5, "this string is not closed"),
        ("/a LIKE 'x", 8, "this string is not closed"),
        ("/a LIKE r'x", 8, "this string is not closed"),
        ("/a IN (r'x", 7, "this string is not closed"),
        ('/a R"x', 3, "this string is not closed"),
        ("/a OR 'x", 6, "this string is not closed"),
        ("/a OR'x", 5, "this string is not closed"),
        ("F'x", 1, "this string is not closed"),
        ("/a BEGINS 'x", 10, "this string is not closed"),
        ("/a = r 'x'", 5, "'r' is neither a field"),
        ("/a 'x", 3, "this string is not closed"),
        ("/a 'x'", 3, "stands where an operator is expected"),
        ("/a /", 4, "the expression ends where"),
        ("/ a", 0, "the name of a field must follow '/' at once"),
        ("/a = / b", 5, "the name of a field must follow '/' at once"),
        ("/a/", 3, "the expression ends where"),
        ("/@ = 1", 0, "the name of a field must follow '/' at once"),
        ("[abc]", 0, "a field in brackets is written [/name]"),
        ("[a].[b].[c]./d", 0, "a field in brackets is written [/name]"),
        ("[/a//b]", 0, "a step of this field has no name"),
        ("[/a/]", 0, "a step of this field has no name"),
        ("/a[x]", 2, "a subscript is written [0]"),
        ("/a[-1]", 2, "a subscript is written [0]"),
        ("/a[1][2]", 5, "a subscript is written [0]"),
        ("'x'[0]", 3, "a subscript is written [0]"),
        ("F()[0]", 3, "a subscript is written [0]"),
        ("/a[16777216]", 0, "subscript 16777216 is above 16777215"),
        ("/a[" + "9" * 5000 + "]", 0, "is above 16777215"),
        ("/a[16777216]/b", 0, "subscript 16777216 is above 16777215"),
        ("[/a][16777216]", 0, "subscript 16777216 is above 16777215"),
        ("abc = 1", 0, "'abc' is neither a field, which begins with '/', nor a function"),
        ("/a = abc", 5, "'abc' is neither a field"),
        ("/a TOPIC_MATCH 'x'", 3, "'TOPIC_MATCH' stands where an operator is expected"),
        ("/a = 1 ANDy", 7, "'ANDy' stands where an operator is expected"),
        ("/a ORF()", 3, "'ORF' stands where an operator is expected"),
        ("/a AND_(1)", 3, "'AND_' stands where an operator is expected"),
        ("/a MOD2", 3, "'MOD2' stands where an operator is expected"),
        ("/a INF(1)", 3, "'INF' stands where an operator is expected"),
        ("/a IS NULLS", 6, "'NULLS' stands where NAN or NOT or NULL is expected"),
        ("/a = NULL1", 5, "'NULL1' is neither a field"),
        ("/a = 1 2", 7, "'2' stands where an operator is expected"),
        ("/a- 1", 4, "'1' stands where an operator is expected"),
        ("/a /b", 3, "'/' divides here: an operator is missing before it, or another '/' after it"),
        ("10/a = 1", 2, "'/' divides here"),
        ("/a = $", 5, "'$' stands where a field"),
        ("/a $ 1", 3, "'$' stands where an operator is expected"),
        ("5.", 1, "'.' stands where an operator is expected"),
        (".5", 0, "'.' stands where a field"),
        ("--5", 1, "'-' stands where a field"),
        ("5 !", 2, "'!' stands where an operator is expected"),
        ("/a ! = 5", 3, "'!' stands where an operator is expected"),
        ("/a > = 5", 5, "'=' stands where a field"),
        ("/a = NOT /b", 5, "NOT with its operand needs parentheses here"),
        ("NOT", 3, "the expression ends where"),
        ("/a NOT = 1", 7, "'=' stands where BEGINS or BETWEEN or ENDS or IN or LIKE is expected"),
        ("/a IS 5", 6, "'5' stands where NAN or NOT or NULL is expected"),
        ("/a IS NOT", 9, "the expression ends where NAN or NULL is expected"),
        ("/a BETWEEN 1", 12, "the expression ends where AND"),
        ("/a BETWEEN 1 OR 2", 13, "'OR' stands where AND"),
        ("/a OF", 5, "the expression ends where CURRENT or PREVIOUS is expected"),
        ("/a OF TODAY", 6, "'TODAY' stands where CURRENT or PREVIOUS is expected"),
        ("1 OF CURRENT", 2, "'OF' stands where an operator is expected"),
        ("/a AND", 6, "the expression ends where"),
        ("AND /a", 0, "'AND' is neither a field"),
        ("/a AND OR /b", 7, "'OR' is neither a field"),
        ("NULL()", 4, "'(' stands where an operator is expected"),
        ("F(,)", 2, "',' stands where a field"),
        ("F(1,,2)", 4, "',' stands where a field"),
        ("SUM(*)", 4, "only COUNT takes '*'"),
        ("COUNT(*, 1)", 7, "',' stands where"),
        ("/a AS /b", 3, "AS is not allowed here"),
        ("/a = 1 # comment", 7, "'#' stands where an operator is expected"),
        ("/a = 1; /b", 6, "';' stands where an operator is expected"),
        ("1, 2", 1, "',' stands where an operator is expected"),
        (
            "1 + " + "x" * 1000 + " " * 1000 + "= 1",
            4,
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is neither a field",
        ),
        ("CASE WHEN", 0, "'CASE' is neither a field"),
    ],
)
def test_fault(text: str, position: int, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parsed(text)
    assert reason in caught.value.reason
    assert caught.value.position == position
    assert f"at character {position + 1}: " in str(caught.value)


def test_message_shows_the_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        parsed("/symbol LIKE /code")
    assert str(caught.value) == (
        "the pattern of LIKE must be a quoted literal, at character 14: /symbol LIKE  --> /code"
    )


def test_message_shows_part_of_a_long_text_and_nothing_unprintable() -> None:
    with pytest.raises(ExpressionError) as caught:
        parsed(b"/a = 1 AND " * 50 + b"\x00\xff\n$ " + b"AND /b = 1 " * 50)
    message = str(caught.value)
    assert len(message) < 250
    assert message.isprintable()
    message.encode("utf-8")
    assert "... 1 AND /a = 1 AND /a = 1 AND /a = 1 AND  --> ?? $ AND" in message


def test_position_counts_characters() -> None:
    with pytest.raises(ExpressionError) as caught:
        parsed("/größe = 'ü' $")
    assert caught.value.position == 13


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("/a = '\ud800'")
    assert caught.value.position == 6


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("/a + 12 * F(/b)", [0, 5, 12, 10, 8, 3]),
        ("NOT /a = 'x' AND /b", [4, 9, 7, 0, 17, 0]),
        ("/a IN (1, -/b)", [0, 7, 11, 10, 3]),
    ],
)
def test_positions_of_nodes(text: str, positions: list[int]) -> None:
    found: list[int] = []
    fold(parsed(text), lambda node, below: found.append(node.position))
    assert found == positions


# Arbitrary texts


def refusal_of(text: str | bytes) -> ExpressionError | None:
    """The refusal of an expression, if any; exceptions other than ExpressionError are not allowed."""
    try:
        compile_expression(text, Usage.PROJECTION)
    except ExpressionError as error:
        return error
    return None


@given(st.text(st.sampled_from("/ab1'\"()[], =<>!+-*%.rxNOT\\@") | st.characters(), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal = refusal_of(text)
    assert refusal is None or (0 <= refusal.position <= len(text) and refusal.reason)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    refusal = refusal_of(text)
    assert refusal is None or refusal.reason
