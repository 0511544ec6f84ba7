"""Compiler, scanner and machine against the reference evaluator, over generated expressions and messages.

Expressions are made as text, of few fields and few values, so that they often agree in a value. Every construct of the
grammar that filters may contain occurs. A difference of type counts as a difference, and so does NaN in another place.

The order of operators is checked separately, because the reference evaluator uses the parser's tree: a text without
parentheses must be the same expression as the text with all of them.
"""

import json
import math
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps.expressions import compile_expression
from tests.support.expressions import delivers, evaluate
from tests.support.reference_expressions import Evaluator
from tests.support.reference_values import Unknown, same

EXAMPLES = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def words(text: str) -> list[str]:
    return text.split()


# Messages as text: the notation of numbers and strings counts.

INTEGERS = words("0 1 2 3 5 7 10 42 250 4503599627370497 9223372036854775807 9223372036854775808")
INTEGERS += ["18446744073709551615", "18446744073709551616"]
FLOATS = words("0.0 0.5 1.0 1.50 2.5 1e2 2E-1 0.1 9007199254740993.0 1e19 1.5e300 1e999")
STRINGS = ["", " 1", *words("a b ab aB abc AB bb a.b 0 1 1.0 01 -1 +5 1.5 .5 5. 1e2")]
STRINGS += words("x true 0x10 inf nan 18446744073709551615 é 1-2")
NAMES = ["a", "b", "c", "s", "o", "k", "my field", "a-1", "2"]


def json_string(text: str) -> st.SearchStrategy[str]:
    """Several notations of a string."""
    plain = '"' + text + '"'
    return st.sampled_from([plain, plain, plain, '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'])


def signed(numbers: list[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(["", "", "-"]), st.sampled_from(numbers)).map("".join)


json_scalars = st.one_of(
    signed(INTEGERS),
    signed(FLOATS),
    st.sampled_from(STRINGS).flatmap(json_string),
    st.sampled_from(["null", "true", "false"]),
)


def json_object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(
        st.sampled_from(NAMES).flatmap(json_string), st.sampled_from([":", " : "]), values
    ).map("".join)
    return st.lists(member, max_size=8).map(lambda members: "{" + ", ".join(members) + "}")


json_values = st.recursive(
    json_scalars,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: "[" + ",".join(parts) + "]") | json_object(inner)
    ),
    max_leaves=8,
)
json_arrays = st.lists(json_scalars, max_size=5).map(lambda parts: "[" + ",".join(parts) + "]")
messages = st.one_of(
    json_object(json_scalars), json_object(json_scalars | json_arrays), json_object(json_values)
).map(str.encode)

# Expressions. None of these texts needs parentheses round it in any place.

fields = st.one_of(
    st.sampled_from(
        [
            "/a",
            "/b",
            "/c",
            "/a",
            "/b",
            "/s",
            "/o/k",
            "/o/a",
            "[/my field]",
            "/a-1",
            "/a/2",
            "/o",
            "/nope",
            "[/o/k]",
        ]
    ),
    st.tuples(
        st.sampled_from(["/a", "/b", "/c", "/o/k", "/s", "[/my field]"]),
        st.sampled_from(["[0]", "[1]", "[9]"]),
    ).map("".join),
)
strings = st.sampled_from([text for text in STRINGS if "'" not in text]).flatmap(
    lambda text: st.sampled_from(
        [
            f"'{text}'",
            f'"{text}"',
            f"r'{text}'",
            f"'\\{text}'" if text.startswith((".", "+", "-")) else f"'{text}'",
        ]
    )
)
numbers = st.sampled_from([*INTEGERS, *FLOATS, "-1", "-2.5", "-7"])
literals = st.one_of(numbers, numbers, strings, strings, numbers | st.just("NULL"))
PATTERNS = words(
    "'a' '^a' 'b$' '^ab$' '(?i)AB' '(?i)^ab$' 'a.' 'a+b' '^[ab]+$' 'a|x' '1' '' '^$' '(?i)a.*C' '[^a]'"
)
PATTERNS += words(r"""'(.)\1' '^1\.' '^\d+$' "\x61" '5{1}' 'a\.b' '\w+' '^(a|b)' '(?s)a.' r'a.b' r'.' r''""")
patterns = st.sampled_from(PATTERNS)

# Placeholders: E is an expression, A one or an array, L a literal, P a pattern, Q a string, S a small number, V the
# left side of IN and similar operators, M a list of expressions.
TEMPLATES = [
    *(f"(E {operator} E)" for operator in words("+ - * / % MOD mod = == != <> < <= > >=")),
    *words(
        "(-E) (+E) ABS(E) upper(E) LOWER(E) Reverse(E) LENGTH(E) TRIM(E) LTRIM(E) RTRIM(E) SIGN(E) CEILING(E)"
    ),
    *words(
        "FLOOR(E) ROUND(E) CRC32(E) CRC64(E) CHAR_VALUE(E) SQRT(E) LN(E) LOG10(E) LOG2(E) EXP(E) SIN(E) COS(E)"
    ),
    *words(
        "TAN(E) ATAN(E) ASIN(E) ACOS(E) SINH(E) COSH(E) TANH(E) POWER(E,E) INSTR(E,E) INSTR_I(E,E) STREQUAL(E,E)"
    ),
    *words(
        "STREQUAL_I(E,E) ARRAY_COUNT(A) ARRAY_MAX(A) ARRAY_MIN(A) ARRAY_SUM(A) ARRAY_TO_STRING(A,L,L) CONCAT(M)"
    ),
    *words(
        "COALESCE(M) GREATEST(M) LEAST(M) IF(E,E,E) if(E,A,A) REPLACE(E,L,L) SUBSTR(E,S) SUBSTR(E,S,S) LEFT(E,S)"
    ),
    *words("RIGHT(E,S) REGEXP_MATCH(E,P) REGEXP_REPLACE(E,'[a-b]+',Q) REGEXP_REPLACE(E,r'a',L) TRUE_VALUE()"),
    *words("FALSE_VALUE() NAN_VALUE()"),
    *(
        [
            "(A BETWEEN E AND E)",
            "(E not between A and A)",
            "(A IN (V))",
            "(E IN(A))",
            "(A NOT IN (V))",
            "(A in (M))",
        ]
        * 2
    ),
    *(
        [
            "(A LIKE P)",
            "(E NOT LIKE P)",
            "(A BEGINS WITH (V))",
            "(A NOT BEGINS WITH(M))",
            "(A ENDS  WITH (V))",
        ]
        * 2
    ),
    *(
        [
            "(A IS NULL)",
            "(E IS NOT NULL)",
            "(E IS NAN)",
            "(E is not nan)",
            "(not E)",
            "(NOT E)",
            "(A = A)",
            "(A < A)",
        ]
        * 2
    ),
    *(
        [
            "(E AND E)",
            "(E OR E)",
            "(E and E AND E)",
            "(E OR E or E)",
            "(E OR E AND E)",
            "(NOT E OR E AND NOT E)",
        ]
        * 2
    ),
]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """An expression that needs no parentheses round it in any place."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.one_of(fields, fields, literals))

    def made(kind: re.Match[str]) -> str:
        match kind[0]:
            case "E":
                drawn = draw(expressions(depth - 1))
                # No sign may follow a sign.
                signed = kind.string[kind.start() - 1] in "+-" and drawn[0] in "+-"
                return f"({drawn})" if signed else drawn
            case "A":
                return draw(fields | expressions(depth - 1))
            case "M":
                return ", ".join(draw(st.lists(fields | expressions(depth - 1), min_size=1, max_size=3)))
            case "V":
                return ", ".join(draw(st.lists(literals, min_size=1, max_size=5)))
            case "S":
                return draw(st.sampled_from(["1", "2", "3", "0", "-1"]))
            case other:
                return draw({"L": literals, "P": patterns, "Q": strings}[other])

    return re.sub(r"\b[EAMVLPQS]\b", made, draw(st.sampled_from(TEMPLATES)))


def joined(*parts: str | st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


BESIDE = [(b"o",), (b"a", 0, b"k"), (b"zz",), (b"a",), (b"b", b"k")]


def agree(text: str, message: bytes) -> None:
    expression = compile_expression(text)
    reference = Evaluator(message)
    try:
        expected = reference.evaluate(expression.syntax)
        matches = reference.matches(expression.syntax)
    except Unknown:
        return
    found = evaluate(expression, message)
    assert same(found, expected), f"{text} on {message!r}: {found!r} instead of {expected!r}"
    assert delivers(expression, message) == matches, f"{text} on {message!r}"
    # Fields wanted by other filters change nothing.
    assert same(evaluate(expression, message, beside=BESIDE), expected)


@EXAMPLES
@given(expressions(), messages)
def test_machine_and_reference_agree(text: str, message: bytes) -> None:
    agree(text, message)


@EXAMPLES
@given(
    joined(fields, st.sampled_from([" = ", " != ", " < ", " <= ", " > ", " >= "]), literals | fields)
    | joined(literals, st.sampled_from([" = ", " != ", " < ", " <= ", " > ", " >= "]), fields),
    json_object(json_scalars).map(str.encode),
)
def test_comparisons_of_a_field_agree(text: str, message: bytes) -> None:
    """Comparisons for which the machine has fast paths."""
    agree(text, message)


@EXAMPLES
@given(
    joined(
        fields,
        st.sampled_from([" IN (", " NOT IN ("]),
        st.lists(literals, min_size=1, max_size=30).map(",".join),
        ")",
    ),
    messages,
)
def test_long_lists_agree(text: str, message: bytes) -> None:
    agree(text, message)


PREDICATES = st.one_of(
    joined(fields, st.sampled_from([" = ", " != ", " < ", " <= ", " > ", " >= "]), literals),
    joined(fields, st.sampled_from([" BETWEEN ", " NOT BETWEEN "]), numbers, " AND ", numbers),
    joined(
        fields,
        st.sampled_from([" IN (", " NOT IN ("]),
        st.lists(strings, min_size=1, max_size=8).map(",".join),
        ")",
    ),
)


@EXAMPLES
@given(
    st.recursive(
        PREDICATES,
        lambda inner: st.one_of(
            joined("(", inner, st.sampled_from([" AND ", " OR "]), inner, ")"),
            joined("(", inner, " AND ", inner, " AND ", inner, ")"),
            joined("(NOT ", inner, ")"),
            joined("IF(", inner, ", ", inner, ", ", inner, ")"),
        ),
        max_leaves=6,
    ),
    json_object(json_scalars).map(str.encode),
)
def test_predicates_and_conditions_made_of_them_agree(text: str, message: bytes) -> None:
    agree(text, message)


@EXAMPLES
@given(joined(fields, st.sampled_from([" LIKE ", " NOT LIKE "]), patterns), messages)
def test_patterns_agree(text: str, message: bytes) -> None:
    agree(text, message)


operands = st.one_of(
    st.integers(-9, 9).map(str),
    signed(INTEGERS),
    signed(FLOATS),
    st.integers(-(2**63), 2**64).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


@EXAMPLES
@given(operands, operands)
@example("-7", "2")
@example("7", "-2")
@example("4294967296", "4294967296")
@example("-9223372036854775808", "-1")
@example("9223372036854775807", "1")
@example("18446744073709551615", "18446744073709551615")
@example("-1", "18446744073709551615")
def test_arithmetic_agrees(left: str, right: str) -> None:
    message = f'{{"x":{left},"y":"{right}"}}'.encode()
    for operator in "+-*/%":
        agree(f"/x {operator} /y", message)
        agree(f"{left} {operator} {right}", message)
        agree(f"/x {operator} {right} = {left}", message)
    agree(f"/x < {right} OR ({left} >= /y) AND NOT /x = /y", message)


OF_ONE = words(
    "ABS CEILING FLOOR ROUND SIGN SQRT LN LOG2 LOG10 EXP SIN COS TAN ASIN ACOS ATAN SINH COSH TANH - +"
)
OF_ONE += words(
    "CHAR_VALUE LENGTH REVERSE UPPER LOWER TRIM LTRIM RTRIM CRC32 CRC64 ARRAY_SUM ARRAY_COUNT NOT CONCAT"
)


@EXAMPLES
@given(
    st.sampled_from(OF_ONE),
    st.one_of(
        json_scalars,
        st.integers(-20, 20).map(lambda halves: str(halves / 2)),
        st.integers(-(2**63), 2**64).map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.text("aZ é\t\v", max_size=6).map(json.dumps),
    ),
)
@example("ROUND", "2.5")
@example("ROUND", "-2.5")
@example("ROUND", "0.49999999999999994")
@example("ABS", "-9223372036854775808")
@example("FLOOR", "-0.5")
@example("CEILING", "-0.5")
def test_functions_of_one_value_agree(name: str, value: str) -> None:
    agree(f"{name}(/x)", f'{{"x":{value}}}'.encode())


@EXAMPLES
@given(
    st.sampled_from(words("GREATEST LEAST COALESCE CONCAT")),
    st.lists(fields | literals | st.sampled_from(["NAN_VALUE()", "TRUE_VALUE()"]), min_size=1, max_size=6),
    st.sampled_from(words("ARRAY_MAX ARRAY_MIN ARRAY_SUM ARRAY_COUNT")),
    messages,
)
@example("GREATEST", ["NAN_VALUE()", "1", "NAN_VALUE()", "3"], "ARRAY_SUM", b'{"a":[1,"x",3]}')
@example("LEAST", ["NULL", "'1.0'", "1", "1.0"], "ARRAY_MAX", b'{"a":["1.0",1,"x"]}')
@example("GREATEST", ["1", "1.0"], "ARRAY_MIN", b'{"a":[null,{"k":1},2]}')
@example("COALESCE", ["/o", "NULL", "''", "/a"], "ARRAY_COUNT", b'{"o":{"k":1},"a":["",null]}')
def test_functions_of_many_values_agree(
    name: str, arguments: list[str], of_array: str, message: bytes
) -> None:
    agree(f"{name}({', '.join(arguments)})", message)
    agree(f"{of_array}(/a)", message)
    agree(f"ARRAY_TO_STRING(/a, ', ', {arguments[0]})", message)
    agree(f"IF(/b, /o, /a) IS NULL OR COALESCE(/o) IS NOT NULL OR {of_array}(/o) = 0", message)


# Precedence (section 6): chains of operators without parentheses, and the same with all of them.

# The precedence of operators. That of the comparisons follows the order in which they are documented.
LEVELS = {
    "*": 11,
    "/": 11,
    "%": 11,
    "MOD": 11,
    "+": 10,
    "-": 10,
    "=": 9,
    "==": 9,
    ">": 8,
    ">=": 7,
    "<": 6,
    "<=": 5,
}
LEVELS |= {"!=": 4, "<>": 4, "AND": 2, "OR": 1}


def parenthesised(parts: list[str]) -> str:
    """The expression with all parentheses.

    `parts` are operands and operators in turn; an operand may begin with NOTs.
    """
    return grouped(parts, 0)


def grouped(parts: list[str], level: int) -> str:
    """Take operators of at least this precedence, with their operands, from the front."""
    operand = parts.pop(0)
    left = "(NOT " + grouped(parts, 3) + ")" if operand == "NOT" else operand
    last = ""
    while parts and LEVELS[parts[0]] >= level:
        operator = parts.pop(0)
        if operator == last and operator in ("AND", "OR"):
            left = left[1:-1]  # a AND b AND c is one AND of three
        left = f"({left} {operator} {grouped(parts, LEVELS[operator] + 1)})"
        last = operator
    return left


@st.composite
def chains(draw: st.DrawFn) -> list[str]:
    parts: list[str] = []
    logical = True  # whether a NOT may stand here
    for place in range(draw(st.integers(2, 8))):
        if place:
            parts.append(draw(st.sampled_from(sorted(LEVELS))))
            logical = parts[-1] in ("AND", "OR")
        if logical and draw(st.booleans()):
            parts.append("NOT")
        parts.append(draw(st.sampled_from(["/a", "/b", "1", "2.5", "'x'", "-3", "- /c", "ABS(/a)", "NULL"])))
    return parts


@EXAMPLES
@given(chains())
@example(["/a", "OR", "/b", "AND", "1"])
@example(["NOT", "/a", "=", "1", "AND", "/b"])
@example(["/a", "-", "/b", "-", "1"])
@example(["/a", "<", "/b", "=", "1"])
@example(["/a", "=", "/b", "<", "1"])
def test_precedence(chain: list[str]) -> None:
    text = " ".join(chain)
    whole = parenthesised(list(chain))
    assert compile_expression(text).canonical == compile_expression(whole).canonical, whole


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("NOT /data IN (1,2)", "NOT (/data IN (1,2))"),
        ("NOT /a IS NULL", "NOT (/a IS NULL)"),
        ("/a + 1 BETWEEN 1 + 1 AND 2 * 3 AND /b", "((/a + 1) BETWEEN (1 + 1) AND (2 * 3)) AND /b"),
        ("/a LIKE 'x' AND /b IN (1) OR /c", "((/a LIKE 'x') AND (/b IN (1))) OR /c"),
        ("/a < /b = 1", "/a < (/b = 1)"),
        ("/a = /b IS NULL", "(/a = /b) IS NULL"),
        ("/a != 1 IN (1)", "(/a != 1) IN (1)"),
        ("- /a * 2", "(- /a) * 2"),
        ("/a / 2 / 3", "(/a / 2) / 3"),
        ("10/2", "10 / 2"),
        ("(/a)/2", "(/a) / 2"),
        ("/a NOT IN (1)", "NOT (/a IN (1))"),
        ("/a NOT LIKE 'x'", "NOT (/a LIKE 'x')"),
        ("/a NOT BETWEEN 1 AND 2", "NOT (/a BETWEEN 1 AND 2)"),
        ("/a IS NOT NULL", "NOT (/a IS NULL)"),
        ("/a == 1", "/a = 1"),
        ("/a <> 1", "/a != 1"),
        ("/a MOD 2", "/a % 2"),
        ("IF (/a, 1, 2)", "if(/a,1,2)"),
        ("/a BEGINS WITH('x')", '/a begins with ( "x" )'),
    ],
)
def test_precedence_of_other_operators(text: str, whole: str) -> None:
    assert compile_expression(text).canonical == compile_expression(whole).canonical


def test_nan_is_one_value() -> None:
    assert same(evaluate("NAN_VALUE()"), math.nan)
