"""The grammar and meaning of expressions: lexical rules, grammar, precedence, constructed fields.

Sections are those of docs/spec/expressions.md (2.1 grammar, 2.2 lexical rules, 6 precedence, 11 constructors).
"""

import pytest

from amps.expressions import ExpressionError
from amps.expressions.parser import parse_construction
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


def f(*steps: str | int, **more: object) -> Field:
    return Field(tuple(step if isinstance(step, int) else step.encode() for step in steps), **more)  # type: ignore[arg-type]


def n(value: int | float | bytes | None) -> Literal:
    return Literal(value)


A, B, C, D = f("a"), f("b"), f("c"), f("d")
ONE, TWO, THREE = n(1), n(2), n(3)


# Fields: 2.1, 2.2, 3


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("/a", A),
        ("/a/b/c", f("a", "b", "c")),
        ("/and/or/not/null", f("and", "or", "not", "null")),
        ("/35", f("35")),
        ("/a-1", f("a-1")),
        ("/a--1", f("a--1")),
        ("/-a", f("-a")),
        ("/a.b:c_d-e", f("a.b:c_d-e")),
        ("/a/@ref", f("a", "@ref")),
        ("/@ref", f("@ref")),
        ("/a[0]", f("a", element=0)),
        ("/a[12]", f("a", element=12)),
        ("/a[007]", f("a", element=7)),
        ("/a [ 3 ]", f("a", element=3)),
        ("/a[1]/b", f("a", 1, "b")),
        ("/a[1]/b/c[2]/@d[3]", f("a", 1, "b", "c", 2, "@d", element=3)),
        ("/größe", f("größe")),
        ("[/Any Name]", f("Any Name")),
        ("[/Any Name/x y]", f("Any Name", "x y")),
        ("[/a=b, (c) 'd']", f("a=b, (c) 'd'")),
        ("[/Any Name][4]", f("Any Name", element=4)),
        ("[/Any Name] [4]", f("Any Name", element=4)),
        ("[/a]", A),
        ("[orders]./a", f("a", qualifier=("orders",))),
        ("[orders].[/a b]", f("a b", qualifier=("orders",))),
        ("[json].[orders]./a/b[1]", f("a", "b", element=1, qualifier=("json", "orders"))),
        ("[json] . [/AMPS/Stats] . /a", f("a", qualifier=("json", "/AMPS/Stats"))),
        ("/a OF CURRENT", f("a", of="CURRENT")),
        ("/a of previous", f("a", of="PREVIOUS")),
        ("/a[1] OF PREVIOUS", f("a", element=1, of="PREVIOUS")),
        ("[/a b]OF PREVIOUS", f("a b", of="PREVIOUS")),
    ],
)
def test_field(text: str, field: Field) -> None:
    assert parsed(text) == field


def test_fields_are_case_sensitive() -> None:
    assert parsed("/A") != parsed("/a")


def test_field_in_bytes_that_are_no_utf8() -> None:
    assert parsed(b"/a\xff\x80 = '\xfe'") == Compare("==", Field((b"a\xff\x80",)), n(b"\xfe"))


def test_bytes_and_text_are_read_alike() -> None:
    assert parsed("/größe = 'ü'".encode()) == parsed("/größe = 'ü'")


# Literals: 2.2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("0", 0),
        ("0042", 42),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", 2**64 - 1),
        ("000018446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("9" * 5000, float("inf")),
        ("98.6", 98.6),
        ("31.4e-1", 3.14),
        ("6.022E23", 6.022e23),
        ("2e3", 2000.0),
        ("2E+3", 2000.0),
        ("1.50", 1.5),
    ],
)
def test_number(text: str, value: int | float) -> None:
    assert same(parsed(text), n(value))


def test_signed_number() -> None:
    assert same(parsed("-273"), Unary("-", n(273)))
    assert same(parsed("+1.5"), Unary("+", n(1.5)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'abc'", b"abc"),
        ('"abc"', b"abc"),
        ("''", b""),
        ('""', b""),
        ("'a\"b'", b'a"b'),
        ('"a\'b"', b"a'b"),
        (r"'a\'b'", b"a'b"),
        (r'"a\"b"', b'a"b'),
        (r"'\a\b\t\n\f\r'", b"\a\b\t\n\f\r"),
        (r"'\x41\x7e\xFf'", b"\x41\x7e\xff"),
        (r"'\101\000\377'", b"A\x00\xff"),
        (r"'\x41\102\t'", b"AB\t"),  # example 96
        (r"'\q\\\%'", rb"q\%"),
        (r"'\x4'", b"x4"),
        (r"'\xg1'", b"xg1"),
        (r"'\18'", b"18"),
        (r"'\400'", b"400"),  # more than a byte
        (r"'\1012'", b"A2"),
        (r"'\v\0'", b"v0"),
        (r"'\\x41'", rb"\x41"),
        ("'\\\n'", b"\n"),
        ("'a\nb\x00c'", b"a\nb\x00c"),
        ("'ü'", "ü".encode()),
        (r"r'\x41'", rb"\x41"),
        (r"R'a\'", b"a\\"),
        (r'r"it' "'" r's\n"', rb"it's\n"),
        ("r''", b""),
        ("r'a\x00\nb'", b"a\x00\nb"),
    ],
)
def test_string(text: str, value: bytes) -> None:
    assert parsed(text) == n(value)


def test_null() -> None:
    assert same(parsed("NULL"), n(None))
    assert same(parsed("null"), n(None))
    assert parsed("/a = Null") == Compare("==", A, n(None))


# Patterns: 2.2


@pytest.mark.parametrize(
    ("text", "pattern", "raw"),
    [
        (r"'(.)\1'", rb"(.)\1", False),
        (r'"^90\..*"', rb"^90\..*", False),
        (r"'C\+\+'", rb"C\+\+", False),
        (r"'\t\x41\101'", rb"\t\x41\101", False),
        (r"'\\'", rb"\\", False),
        (r"'it\'s'", b"it's", False),
        (r"'\\\''", rb"\\'", False),
        (r"'\"'", rb"\"", False),
        (r'"\""', b'"', False),
        (r'"\'"', rb"\'", False),
        ("r'C++'", b"C++", True),
        (r"R'\d'", rb"\d", True),
        ("''", b"", False),
    ],
)
def test_pattern(text: str, pattern: bytes, raw: bool) -> None:
    assert parsed(f"/a LIKE {text}") == Like(A, pattern, raw)
    assert parsed(f"REGEXP_MATCH(/a, {text})") == Call("REGEXP_MATCH", (A, Pattern(pattern, raw)))


def test_pattern_of_a_replacement() -> None:
    """Only the pattern is passed on unchanged; the replacement is a value like others."""
    call = parsed(r"regexp_replace(/a, '\t(b)', '\t')")
    assert call == Call("REGEXP_REPLACE", (A, Pattern(rb"\t(b)", False), n(b"\t")))


# "/", "-" and "*": 2.2, 14.8


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("/a/2", f("a", "2")),
        ("/a / 2", Binary("/", A, TWO)),
        ("/a /2", Binary("/", A, TWO)),
        ("/a/ 2", Binary("/", A, TWO)),
        ("/a//b", Binary("/", A, B)),
        ("/a / /b", Binary("/", A, B)),
        ("10/2", Binary("/", n(10), TWO)),
        ("10//a", Binary("/", n(10), A)),
        ("(/a)/2", Binary("/", A, TWO)),
        ("F()/2", Binary("/", Call("F", ()), TWO)),
        ("'4'/2", Binary("/", n(b"4"), TWO)),
        ("/a[1]/b", f("a", 1, "b")),
        ("/a[1] /2", Binary("/", f("a", element=1), TWO)),
        ("[/a b]/2", Binary("/", f("a b"), TWO)),
        ("/6*/14", Binary("*", f("6"), f("14"))),
        ("/a*2", Binary("*", A, TWO)),
        ("2*/a", Binary("*", TWO, A)),
        ("/a%/b", Binary("%", A, B)),
        ("/a+/b", Binary("+", A, B)),
        ("/a-1", f("a-1")),
        ("/a - 1", Binary("-", A, ONE)),
        ("/a -1", Binary("-", A, ONE)),
        ("3-1", Binary("-", THREE, ONE)),
        ("3 - -1", Binary("-", THREE, Unary("-", ONE))),
        ("3--1", Binary("-", THREE, Unary("-", ONE))),
        ("3+ +1", Binary("+", THREE, Unary("+", ONE))),
        ("-/a", Unary("-", A)),
        ("- /a", Unary("-", A)),
        ("-(1 + 2)", Unary("-", Binary("+", ONE, TWO))),
        ("-F()", Unary("-", Call("F", ()))),
        ("-NULL", Unary("-", n(None))),
        ("-'1'", Unary("-", n(b"1"))),
    ],
)
def test_slash_minus_and_star(text: str, tree: Node) -> None:
    assert parsed(text) == tree


# Predicates: 2.1


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("/a = 1", Compare("==", A, ONE)),
        ("/a == 1", Compare("==", A, ONE)),
        ("/a != 1", Compare("!=", A, ONE)),
        ("/a <> 1", Compare("!=", A, ONE)),
        ("/a < 1", Compare("<", A, ONE)),
        ("/a <= 1", Compare("<=", A, ONE)),
        ("/a > 1", Compare(">", A, ONE)),
        ("/a >= 1", Compare(">=", A, ONE)),
        ("1 < /a", Compare("<", ONE, A)),
        ("/a BETWEEN 1 AND 2", Between(A, ONE, TWO)),
        ("/a NOT BETWEEN 1 AND 2", Not(Between(A, ONE, TWO))),
        (
            "/a + 1 BETWEEN 1 * 2 AND /b - 1",
            Between(Binary("+", A, ONE), Binary("*", ONE, TWO), Binary("-", B, ONE)),
        ),
        ("/a BETWEEN 1 AND 2 AND /b", And((Between(A, ONE, TWO), B))),
        ("/a IN (1)", In(A, (ONE,))),
        ("/a IN (1, 'x', /b, NULL)", In(A, (ONE, n(b"x"), B, n(None)))),
        (
            "/21964 IN (/14*5, /6*/14, 1000)",
            In(f("21964"), (Binary("*", f("14"), n(5)), Binary("*", f("6"), f("14")), n(1000))),
        ),
        ("/a IN (/b = 1, /c OR /d)", In(A, (Compare("==", B, ONE), Or((C, D))))),
        ("/a NOT IN (1, 2)", Not(In(A, (ONE, TWO)))),
        ("NOT /a IN (1, 2)", Not(In(A, (ONE, TWO)))),
        ("/a LIKE 'x'", Like(A, b"x")),
        ("/a NOT LIKE 'x'", Not(Like(A, b"x"))),
        ("/a BEGINS WITH ('x', 'y')", BeginsWith(A, (n(b"x"), n(b"y")))),
        ("/a NOT BEGINS WITH ('x')", Not(BeginsWith(A, (n(b"x"),)))),
        ("/a ENDS WITH ('x')", EndsWith(A, (n(b"x"),))),
        ("/a NOT ENDS WITH ('x')", Not(EndsWith(A, (n(b"x"),)))),
        ("/a IS NULL", IsNull(A)),
        ("/a IS NOT NULL", Not(IsNull(A))),
        ("NOT /a IS NULL", Not(IsNull(A))),
        ("/a IS NAN", IsNan(A)),
        ("/a IS NOT NAN", Not(IsNan(A))),
        ("NOT NOT /a", Not(Not(A))),
        ("TRUE_VALUE()", Call("TRUE_VALUE", ())),
        ("f(1, /a = 1 OR /b, g())", Call("F", (ONE, Or((Compare("==", A, ONE), B)), Call("G", ())))),
        ("if(/a > 1, 'big', NULL)", Call("IF", (Compare(">", A, ONE), n(b"big"), n(None)))),
        ("COUNT(*)", Call("COUNT", (ONE,))),
        ("-count( * )", Unary("-", Call("COUNT", (ONE,)))),
        ("((/a))", A),
    ],
)
def test_predicate(text: str, tree: Node) -> None:
    assert same(parsed(text), tree)


def test_nan_is_no_literal() -> None:
    with pytest.raises(ExpressionError):
        parsed("/a = NAN")


# Precedence: 6


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("1 * 2 + 3", "(1 * 2) + 3"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("1 - 2 + 3 * 4 / 5 - 6", "((1 - 2) + ((3 * 4) / 5)) - 6"),
        ("8 / 4 / 2 * 3 % 5 MOD 7", "((((8 / 4) / 2) * 3) % 5) % 7"),
        ("-5 % 3", "(-5) % 3"),
        ("5 % -3", "5 % (-3)"),
        ("-2 * -3 + -4", "((-2) * (-3)) + (-4)"),
        ("1 + 2 = 3 - 4", "(1 + 2) = (3 - 4)"),
        ("1 + 2 IN (3)", "(1 + 2) IN (3)"),
        ("1 + 2 LIKE 'x'", "(1 + 2) LIKE 'x'"),
        ("1 + 2 BEGINS WITH ('x')", "(1 + 2) BEGINS WITH ('x')"),
        ("1 * 2 IS NULL", "(1 * 2) IS NULL"),
        ("NOT /a = 1", "NOT (/a = 1)"),
        ("NOT /a + 1", "NOT (/a + 1)"),
        ("NOT /a IN (1,2)", "NOT (/a IN (1,2))"),
        ("NOT /a AND /b", "(NOT /a) AND /b"),
        ("/a AND NOT /b OR /c", "(/a AND (NOT /b)) OR /c"),
        ("/a OR /b AND /c", "/a OR (/b AND /c)"),
        ("/a AND /b OR /c", "(/a AND /b) OR /c"),
        ("/a AND /b OR /c AND /d", "(/a AND /b) OR (/c AND /d)"),
        ("/a OR /b OR /c", "(/a OR /b) OR /c"),
        ("/a OR /b OR /c", "/a OR (/b OR /c)"),
        ("/a AND /b AND /c", "(/a AND /b) AND /c"),
        ("/a AND /b AND /c", "/a AND (/b AND /c)"),
        # the comparisons among themselves, in the documented order, tightest first
        ("/a = /b == /c", "(/a = /b) == /c"),
        ("/a < /b < /c", "(/a < /b) < /c"),
        ("/a > /b = /c", "/a > (/b = /c)"),
        ("/a = /b > /c", "(/a = /b) > /c"),
        ("/a >= /b > /c", "/a >= (/b > /c)"),
        ("/a < /b >= /c", "/a < (/b >= /c)"),
        ("/a <= /b < /c", "/a <= (/b < /c)"),
        ("/a != /b <= /c", "/a != (/b <= /c)"),
        ("/a <> /b = /c", "/a <> (/b = /c)"),
        ("/a != /b < /c = /d", "/a != (/b < (/c = /d))"),
        ("/a = /b < /c != /d", "((/a = /b) < /c) != /d"),
        ("/a < /b = /c < /d", "(/a < (/b = /c)) < /d"),
        # and after them all others, from left to right
        ("/a != /b IS NULL", "(/a != /b) IS NULL"),
        ("/a != /b IN (1)", "(/a != /b) IN (1)"),
        ("/a != /b LIKE 'x'", "(/a != /b) LIKE 'x'"),
        ("/a < /b BETWEEN 1 AND 2", "(/a < /b) BETWEEN 1 AND 2"),
        ("/a IS NULL = 1", "(/a IS NULL) = 1"),
        ("/a IN (1) IS NOT NULL", "(/a IN (1)) IS NOT NULL"),
        ("/a < /b IS NULL = /c", "((/a < /b) IS NULL) = /c"),
        ("/a BETWEEN 1 AND 2 = /c", "(/a BETWEEN 1 AND 2) = /c"),
        ("/a NOT IN (1) NOT IN (0)", "(/a NOT IN (1)) NOT IN (0)"),
    ],
)
def test_precedence(text: str, grouped: str) -> None:
    assert same(parsed(text), parsed(grouped))
    assert text_of(parsed(text)) == text_of(parsed(grouped))


def test_comparisons_differ_from_left_to_right() -> None:
    assert parsed("/a < /b = /c") != parsed("(/a < /b) = /c")


# Keywords, names and blanks: 2.1, 2.2


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("/a is not null And nOt /b iN (1) oR /c", "/a IS NOT NULL AND NOT /b IN (1) OR /c"),
        (
            "/a like 'x' or /a begins with ('x') or /a ends with ('x')",
            "/a LIKE 'x' OR /a BEGINS WITH ('x') OR /a ENDS WITH ('x')",
        ),
        ("/a between 1 and 2", "/a BETWEEN 1 AND 2"),
        ("/a mod 2", "/a % 2"),
        ("/a Mod 2 is nan", "/a % 2 IS NAN"),
        ("/a of current", "/a OF CURRENT"),
        ("upper(/a)", "UPPER(/a)"),
        ("IF (/c, /a, /b)", "IF(/c,/a,/b)"),
        ("/a BEGINS WITH('x')", "/a BEGINS WITH ('x')"),
        ("/a IN(1,2)AND/b", "/a IN (1, 2) AND /b"),
        ("NOT/a", "NOT /a"),
        ("NOT(/a)", "NOT /a"),
        ("(/a)AND(/b)", "/a AND /b"),
        ("1AND 2OR 3", "1 AND 2 OR 3"),
        ("5MOD 3", "5 % 3"),
        ("'a'LIKE'b'", "'a' LIKE 'b'"),
        ("'a'IN('b')", "'a' IN ('b')"),
        ("/a=1OR/b=2", "/a = 1 OR /b = 2"),
        ("F()IS NULL", "F() IS NULL"),
        (" \t\r\n/a\n=\f1\v ", "/a = 1"),
        ("/a IS\nNOT\nNULL", "/a IS NOT NULL"),
        ("1>2", "1 > 2"),
        ("'a'<='b'", "'a' <= 'b'"),
        # words that are keywords elsewhere are names of functions and steps in the place of an operand
        ("MOD(5, 3) MOD 2", "mod(5,3) % 2"),
        ("OR(1) OR AND(2)", "or(1) OR and(2)"),
        ("IN(1) IN (IN(2))", "in(1) IN (in(2))"),
        ("LIKE(1) LIKE 'x'", "like(1) LIKE 'x'"),
        ("CURRENT() = PREVIOUS(/a OF PREVIOUS)", "current() = previous(/a OF PREVIOUS)"),
        ("AS(HINT(), OPTIONAL())", "as(hint(), optional())"),
        ("NOTHING() AND NULLS()", "nothing() AND nulls()"),
        ("R('x') = r'x'", "r('x') = 'x'"),
        ("/of OF CURRENT", "[/of] OF CURRENT"),
    ],
)
def test_keywords_and_blanks(text: str, like: str) -> None:
    assert same(parsed(text), parsed(like))


def test_keyword_as_function() -> None:
    assert parsed("MOD(5, 3)") == Call("MOD", (n(5), THREE))


# Constructed fields: 2.1, 11


def test_construction() -> None:
    made = parse_construction("CONCAT(/a, '-', /b) AS /k")
    assert made.source == Call("CONCAT", (A, n(b"-"), B))
    assert made.destination == f("k")
    assert made.hints == ()


@pytest.mark.parametrize(
    ("text", "destination", "hints"),
    [
        ("/a", None, ()),
        ("/a as /b/c", f("b", "c"), ()),
        ("COUNT(/id)AS /n", f("n"), ()),
        ("/a AS [/x y]", f("x y"), ()),
        ("/a AS /b HINT OPTIONAL", B, ("OPTIONAL",)),
        ("/a AS /b hint set_current,optional", B, ("SET_CURRENT", "OPTIONAL")),
        ("/a OF PREVIOUS AS /b HINT SET_CURRENT , OPTIONAL", B, ("SET_CURRENT", "OPTIONAL")),
        ("/a = 1 OR /b AS /c", C, ()),
    ],
)
def test_construction_parts(text: str, destination: Field | None, hints: tuple[str, ...]) -> None:
    made = parse_construction(text)
    assert (made.destination, made.hints) == (destination, hints)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("/a AS", 5, "the expression ends where a field is expected"),
        ("/a AS b", 6, "'b' stands where a field is expected"),
        ("/a AS 'b'", 6, "stands where a field is expected"),
        ("/a HINT OPTIONAL", 3, "HINT is not allowed here"),
        ("/a AS /b HINT", 13, "the expression ends where OPTIONAL or SET_CURRENT is expected"),
        ("/a AS /b HINT NONE", 14, "'NONE' stands where OPTIONAL or SET_CURRENT is expected"),
        ("/a AS /b, /c", 8, "',' stands where"),
        ("/a AS /b OF CURRENT", 9, "'OF' stands where"),
        ("(/a AS /b)", 4, "AS is not allowed here"),
        ("AS /b", 0, "'AS' is neither a field"),
    ],
)
def test_construction_fault(text: str, position: int, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_construction(text)
    assert reason in caught.value.reason
    assert caught.value.position == position
