"""From text to program: instructions, checks of the place where an expression is used, and results of the machine.

Sections are those of docs/spec/expressions.md.
"""

from typing import Any

import pytest

from amps._core.expressions.functions import FUNCTIONS
from amps._core.expressions.machine import OPCODES, Program
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues, MessageContext
from amps.expressions import (
    CURRENT,
    PREVIOUS,
    Expression,
    ExpressionError,
    Functions,
    Hint,
    Usage,
    compile_expression,
    parse_field_constructor,
)
from amps.expressions import compiler as compiler_module


class Machine:
    """A substitute for the program that keeps its constructor's arguments."""

    def __init__(
        self,
        code: list[int],
        constants: list[Any],
        patterns: list[Any],
        fields: list[Any],
        stack_depth: int,
        functions: list[Any],
    ) -> None:
        names = {number: name for name, number in OPCODES.items()}
        self.code = [(names[word & 0xFF], word >> 8) for word in code]
        self.constants = constants
        self.patterns = patterns
        self.fields = fields
        self.stack_depth = stack_depth


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compile to a program that can be inspected."""
    monkeypatch.setattr(compiler_module, "Program", Machine)
    return lambda text, usage=Usage.FILTER: compile_expression(text, usage).program


def refused(text: str, usage: Usage = Usage.FILTER) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, usage)
    return caught.value


def evaluated(text: str, message: bytes = b"{}", usage: Usage = Usage.FILTER) -> Any:
    program = compile_expression(text, usage).program
    assert program is not None
    fields = FieldSet()
    bound = program.bind(fields)
    values = FieldValues()
    assert JsonExtractor().read(message, fields, values)
    return bound.evaluate(values, MessageContext())


# Instructions


@pytest.mark.parametrize(
    ("text", "code", "depth"),
    [
        ("1", [("CONST", 0), ("END", 0)], 1),
        ("/a", [("FIELD", 0), ("END", 0)], 1),
        ("/a[3]", [("FIELD", 0), ("ELEMENT", 3), ("END", 0)], 1),
        ("/a + 1", [("FIELD", 0), ("CONST", 0), ("ADD", 0), ("END", 0)], 2),
        ("/a - 1", [("FIELD", 0), ("CONST", 0), ("SUB", 0), ("END", 0)], 2),
        ("/a * 1", [("FIELD", 0), ("CONST", 0), ("MUL", 0), ("END", 0)], 2),
        ("/a / 1", [("FIELD", 0), ("CONST", 0), ("DIV", 0), ("END", 0)], 2),
        ("/a MOD 1", [("FIELD", 0), ("CONST", 0), ("MOD", 0), ("END", 0)], 2),
        ("-/a", [("FIELD", 0), ("NEG", 0), ("END", 0)], 1),
        ("+/a", [("FIELD", 0), ("POS", 0), ("END", 0)], 1),
        ("+1", [("CONST", 0), ("POS", 0), ("END", 0)], 1),
        ("-1", [("CONST", 0), ("END", 0)], 1),
        ("-'1'", [("CONST", 0), ("NEG", 0), ("END", 0)], 1),
        ("/a = 1", [("FIELD", 0), ("CONST", 0), ("EQ", 0), ("END", 0)], 2),
        ("/a <> 1", [("FIELD", 0), ("CONST", 0), ("NE", 0), ("END", 0)], 2),
        ("/a < 1", [("FIELD", 0), ("CONST", 0), ("LT", 0), ("END", 0)], 2),
        ("/a <= 1", [("FIELD", 0), ("CONST", 0), ("LE", 0), ("END", 0)], 2),
        ("/a > 1", [("FIELD", 0), ("CONST", 0), ("GT", 0), ("END", 0)], 2),
        ("/a >= 1", [("FIELD", 0), ("CONST", 0), ("GE", 0), ("END", 0)], 2),
        ("1 + 2 * 3", [("CONST", 0), ("CONST", 1), ("CONST", 2), ("MUL", 0), ("ADD", 0), ("END", 0)], 3),
        ("1 * 2 + 3", [("CONST", 0), ("CONST", 1), ("MUL", 0), ("CONST", 2), ("ADD", 0), ("END", 0)], 2),
        (
            "/a BETWEEN 1 AND 2",
            [("FIELD", 0), ("CONST", 0), ("CONST", 1), ("BETWEEN", 0), ("END", 0)],
            3,
        ),
        (
            "/a NOT IN (1, /b)",
            [("FIELD", 0), ("CONST", 0), ("FIELD", 1), ("IN", 2), ("NOT", 0), ("END", 0)],
            3,
        ),
        ("/a BEGINS WITH ('x')", [("FIELD", 0), ("CONST", 0), ("BEGINS", 1), ("END", 0)], 2),
        ("/a ENDS WITH ('x')", [("FIELD", 0), ("CONST", 0), ("ENDS", 1), ("END", 0)], 2),
        ("/a LIKE 'x'", [("FIELD", 0), ("LIKE", 0), ("END", 0)], 1),
        ("/a IS NULL", [("FIELD", 0), ("IS_NULL", 0), ("END", 0)], 1),
        ("/a IS NOT NAN", [("FIELD", 0), ("IS_NAN", 0), ("NOT", 0), ("END", 0)], 1),
        (
            "/a AND /b AND /c",
            [
                ("FIELD", 0),
                ("AND_JUMP", 5),
                ("FIELD", 1),
                ("AND_JUMP", 5),
                ("FIELD", 2),
                ("TRUTH", 0),
                ("END", 0),
            ],
            1,
        ),
        (
            "/a OR /b AND /c",
            [
                ("FIELD", 0),
                ("OR_JUMP", 6),
                ("FIELD", 1),
                ("AND_JUMP", 5),
                ("FIELD", 2),
                ("TRUTH", 0),
                ("TRUTH", 0),
                ("END", 0),
            ],
            1,
        ),
        (
            "IF(/a, /b, /c[1] + 1)",
            [
                ("FIELD", 0),
                ("JUMP_UNLESS_TRUE", 5),
                ("FIELD", 1),
                ("CALL", 1 << 12 | FUNCTIONS["COALESCE"].number),
                ("JUMP", 9),
                ("FIELD", 2),
                ("ELEMENT", 1),
                ("CONST", 0),
                ("ADD", 0),
                ("END", 0),
            ],
            2,
        ),
        ("REGEXP_MATCH(/a, 'x')", [("FIELD", 0), ("REGEXP_MATCH", 0), ("END", 0)], 1),
        (
            "REGEXP_REPLACE(/a, 'x', 'y')",
            [("FIELD", 0), ("CONST", 0), ("REGEXP_REPLACE", 0), ("END", 0)],
            2,
        ),
    ],
)
def test_instructions(program: Any, text: str, code: list[tuple[str, int]], depth: int) -> None:
    made = program(text)
    jumps = {"AND_JUMP", "OR_JUMP", "JUMP", "JUMP_UNLESS_TRUE"}
    assert [name for name, _ in made.code] == [name for name, _ in code]
    assert [argument for name, argument in made.code if name not in jumps] == [
        argument for name, argument in code if name not in jumps
    ]
    assert made.stack_depth == depth


@pytest.mark.parametrize(
    ("text", "jumps"),
    [
        ("/a AND /b AND /c", [(1, 6), (3, 6)]),
        ("/a OR /b AND /c", [(1, 7), (3, 6)]),
        ("IF(/a, 1, 2)", [(1, 4), (3, 5)]),
        ("IF(/a, IF(/b, 1, 2), 3) + 1", [(1, 8), (3, 6), (5, 7), (7, 9)]),
    ],
)
def test_jumps(program: Any, text: str, jumps: list[tuple[int, int]]) -> None:
    code = program(text).code
    assert [(place, argument) for place, (name, argument) in enumerate(code) if "JUMP" in name] == jumps


def test_calls(program: Any) -> None:
    code = program("COALESCE(/a, SUBSTR(/b, 2), 3)").code
    assert code[-2] == ("CALL", 3 << 12 | FUNCTIONS["COALESCE"].number)
    assert code[3] == ("CALL", 2 << 12 | FUNCTIONS["SUBSTR"].number)
    assert program("TRUE_VALUE()").code[0] == ("CALL", FUNCTIONS["TRUE_VALUE"].number)


def test_equal_fields_and_constants_are_entered_once(program: Any) -> None:
    made = program("/a = 1 OR /b = 1.0 OR /a = 'x' OR /a[1] = 'x' OR /b = 1 OR /c[0]/a = NULL OR /c/a = ''")
    assert made.fields == [(b"a",), (b"b",), (b"c", 0, b"a"), (b"c", b"a")]
    assert [repr(constant) for constant in made.constants] == ["1", "1.0", "b'x'", "None"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-0.0", -0.0),
        ("-5", -5),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -float(2**63)),
        ("-18446744073709551615", -float(2**64)),
        ("-1.5", -1.5),
        ("''", None),
    ],
)
def test_constants(program: Any, text: str, value: object) -> None:
    assert repr(program(text).constants) == repr([value])


def test_zeros_of_both_signs_are_two_constants(program: Any) -> None:
    assert repr(program("0.0 = -0.0").constants) == "[0.0, -0.0]"


def test_patterns(program: Any) -> None:
    made = program(r"/a LIKE '\d' OR /a LIKE r'\d' OR REGEXP_MATCH(/a, R'C++') = 'x'")
    assert made.patterns == [(rb"\d", False), (rb"\d", True), (b"C++", True)]


# Functions and their arguments: 10, 14.7


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("/a = NOSUCH(/a)", 5, "there is no function NOSUCH"),
        ("SUBSTRING(/a, 1) = 'x'", 0, "there is no function SUBSTRING, but there is SUBSTR"),
        ("BEGINS_WITH(/a, 'x')", 0, "there is no function BEGINS_WITH"),
        ("VALUE_LOOKUP('x', /a)", 0, "there is no function VALUE_LOOKUP"),
        ("upper(/a, /b)", 0, "UPPER takes 1 argument, not 2"),
        ("1 + UPPER()", 4, "UPPER takes 1 argument, not 0"),
        ("SUBSTR(/a)", 0, "SUBSTR takes 2 to 3 arguments, not 1"),
        ("SUBSTR(/a, 1, 2, 3)", 0, "SUBSTR takes 2 to 3 arguments, not 4"),
        ("INSTR(/a)", 0, "INSTR takes 2 arguments, not 1"),
        ("CONCAT()", 0, "CONCAT takes at least 1 argument, not 0"),
        ("COALESCE(" + ",".join(["1"] * 4096) + ")", 0, "COALESCE takes 1 to 4095 arguments, not 4096"),
        ("IF(/a, 1)", 0, "IF takes 3 arguments, not 2"),
        ("IF(/a, 1, 2, 3)", 0, "IF takes 3 arguments, not 4"),
        ("TRUE_VALUE(1)", 0, "TRUE_VALUE takes 0 arguments, not 1"),
        ("REGEXP_MATCH(/a)", 0, "REGEXP_MATCH takes 2 arguments, not 1"),
        ("REGEXP_REPLACE(/a, 'x')", 0, "REGEXP_REPLACE takes 3 arguments, not 2"),
        ("ABS(UPPER(/a) = LOWER())", 16, "LOWER takes 1 argument, not 0"),
    ],
)
def test_wrong_call(text: str, position: int, reason: str) -> None:
    error = refused(text, Usage.PROJECTION)
    assert error.reason.startswith(reason)
    assert error.position == position


def test_most_arguments() -> None:
    assert evaluated("COALESCE(" + ",".join(["NULL"] * 254 + ["7"]) + ")") == 7


def test_every_function_of_the_table_can_be_called() -> None:
    for name, function in FUNCTIONS.items():
        arguments = ["/a"] * max(function.minimum, 1 if function.maximum is None else function.minimum)
        if name.startswith("REGEXP_"):
            arguments[1] = "'x'"
        expression = compile_expression(
            f"{name.lower()}({','.join(arguments)})", Usage.PROJECTION, Functions(legacy=True)
        )
        assert expression.deterministic is function.deterministic
        assert (expression.program is None) is function.aggregate


def test_broken_pattern() -> None:
    """15.65, 14.7"""
    error = refused("/b = 1 AND /a LIKE 'x('")
    assert error.reason == "broken pattern: missing closing parenthesis (at byte 2 of it)"
    assert error.position == 19
    assert refused("REGEXP_MATCH(/a, '[')").position == 17
    compile_expression("/a LIKE r'x('")


def test_broken_pattern_where_no_program_is_made() -> None:
    assert refused("SUM(/a LIKE '(')", Usage.PROJECTION).position == 12
    assert refused("[t]./a LIKE '('", Usage.PROJECTION).position == 12
    assert refused("REGEXP_MATCH(/a OF PREVIOUS, '(')", Usage.ENRICHMENT).position == 29


# Where an expression is used: 1, 10.1, 10.12, 11, 14.15


@pytest.mark.parametrize("usage", [Usage.FILTER, Usage.FIELD, Usage.ENRICHMENT])
def test_aggregates_outside_projections(usage: Usage) -> None:
    """15.54"""
    error = refused("1 < SUM(/qty)", usage)
    assert error.reason == "SUM aggregates, which is allowed only in the projection of a view"
    assert error.position == 4


def test_aggregates_in_projections() -> None:
    expression = compile_expression("SUM(/q * /p) / SUM(IF(/q > 10, /q, NULL))", Usage.PROJECTION)
    assert expression.program is None
    assert expression.fields == ()
    assert expression.deterministic


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("SUM(/a + MAX(/b))", 9, "SUM cannot aggregate the result of MAX"),
        ("SUM(IF(/a, COUNT(*), 1))", 11, "SUM cannot aggregate the result of COUNT"),
        ("SUM(UNIX_TIMESTAMP())", 4, "UNIX_TIMESTAMP is not deterministic, so SUM cannot aggregate it"),
        ("1 + AVG(/a + ABS(LAST_READ()))", 17, "LAST_READ is not deterministic, so AVG cannot aggregate it"),
    ],
)
def test_aggregated(text: str, position: int, reason: str) -> None:
    """15.55"""
    error = refused(text, Usage.PROJECTION)
    assert (error.reason, error.position) == (reason, position)


@pytest.mark.parametrize("name", ["UNIX_TIMESTAMP", "LAST_READ"])
def test_deterministic_only(name: str) -> None:
    """15.55"""
    text = f"/a = 1 AND {name}() > 0"
    assert not compile_expression(text).deterministic
    assert not compile_expression(text, Usage.FIELD).deterministic
    error = refused(text, Usage.FILTER | Usage.DETERMINISTIC)
    assert error.reason == f"{name} is not deterministic, which is not allowed here"
    assert error.position == 11
    assert compile_expression("LAST_UPDATED() > 0", Usage.FILTER | Usage.DETERMINISTIC).deterministic


@pytest.mark.parametrize("usage", [Usage.FILTER, Usage.FIELD, Usage.ENRICHMENT])
def test_qualifiers(usage: Usage) -> None:
    error = refused("/b = [orders]./a", usage)
    assert error.reason == "a field with [topic] is allowed only in the projection of a view"
    assert error.position == 5


def test_qualifiers_in_projections() -> None:
    assert compile_expression("[orders]./a + 1", Usage.PROJECTION).program is None


@pytest.mark.parametrize("usage", [Usage.FILTER, Usage.FIELD, Usage.PROJECTION])
def test_previous(usage: Usage) -> None:
    error = refused("COALESCE(/a, /a OF PREVIOUS)", usage)
    assert error.reason == "OF PREVIOUS is allowed only in the enrichment of a SOW topic"
    assert error.position == 13


def test_previous_in_enrichment() -> None:
    """expressions.md §11: the program reads two messages, each below a step of its own."""
    made = compile_expression("/a OF PREVIOUS + /a + /b/c OF CURRENT + /a[1] OF PREVIOUS", Usage.ENRICHMENT)
    assert made.fields == ((PREVIOUS, b"a"), (CURRENT, b"a"), (CURRENT, b"b", b"c"))


def test_every_field_in_enrichment_is_of_one_of_two_messages() -> None:
    assert compile_expression("/current = /a", Usage.ENRICHMENT).fields == (
        (CURRENT, b"current"),
        (CURRENT, b"a"),
    )
    assert compile_expression("/a OF CURRENT", Usage.FIELD).fields == ((b"a",),)


def test_current_is_the_message() -> None:
    assert evaluated("/a OF CURRENT + 1", b'{"a":1}') == 2


# Constructed fields: 11, 14.15


def test_constructor() -> None:
    made = parse_field_constructor("CONCAT(/a, '-', /b) AS /c/d HINT SET_CURRENT,OPTIONAL")
    assert made.destination == (b"c", b"d")
    assert made.hints == {Hint.SET_CURRENT, Hint.OPTIONAL}
    assert made.expression.fields == ((b"a",), (b"b",))


@pytest.mark.parametrize(
    ("text", "usage", "destination"),
    [
        ("/a/b", Usage.FIELD, (b"a", b"b")),
        ("[/a b]", Usage.FIELD, (b"a b",)),
        ("[COMPANIES]./Tick", Usage.PROJECTION, (b"Tick",)),
        ("(/a)", Usage.FIELD, (b"a",)),
        ("/a[1] AS [/a b/c]", Usage.FIELD, (b"a b", b"c")),
        ("COUNT(/id)AS /n", Usage.PROJECTION, (b"n",)),
    ],
)
def test_destination(text: str, usage: Usage, destination: tuple[bytes, ...]) -> None:
    made = parse_field_constructor(text, usage)
    assert made.destination == destination
    assert made.hints == frozenset()


@pytest.mark.parametrize(
    ("text", "usage", "position", "reason"),
    [
        ("/a + 1", Usage.FIELD, 3, "this value needs a name: ... AS /field"),
        ("'x'", Usage.FIELD, 0, "this value needs a name: ... AS /field"),
        ("/a[0]", Usage.FIELD, 0, "this value needs a name: ... AS /field"),
        ("/a OF PREVIOUS", Usage.ENRICHMENT, 0, "this value needs a name: ... AS /field"),
        ("/a AS [t]./b", Usage.PROJECTION, 6, "the field after AS cannot have a [topic]"),
        ("/a AS /b[1]", Usage.FIELD, 6, "a constructed field cannot have a subscript"),
        ("/a AS /b[1]/c", Usage.FIELD, 6, "a constructed field cannot have a subscript"),
        ("/a[1]/b", Usage.FIELD, 0, "a constructed field cannot have a subscript"),
        ("/a HINT OPTIONAL", Usage.FIELD, 3, "HINT is not allowed here"),
        ("SUM(/a) AS /a", Usage.ENRICHMENT, 0, "SUM aggregates"),
        ("/a OF PREVIOUS AS /a", Usage.FIELD, 0, "OF PREVIOUS is allowed only in"),
        ("[t]./a AS /a", Usage.ENRICHMENT, 0, "a field with [topic]"),
        ("NOSUCH() AS /a", Usage.FIELD, 0, "there is no function NOSUCH"),
    ],
)
def test_constructor_refused(text: str, usage: Usage, position: int, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_field_constructor(text, usage)
    assert caught.value.reason.startswith(reason)
    assert caught.value.position == position


# Results for the rest of the server


def test_expression() -> None:
    expression = compile_expression(b"/a=1  and ( /b.c IS not NULL )")
    assert isinstance(expression, Expression)
    assert isinstance(expression.program, Program)
    assert expression.text == "/a=1  and ( /b.c IS not NULL )"
    assert expression.canonical == "/a == 1 AND NOT /b.c IS NULL"
    assert expression.fields == ((b"a",), (b"b.c",))
    assert expression.deterministic


@pytest.mark.parametrize(
    ("text", "message", "value"),
    [
        ("/sym = 'ACME' AND /qty > 200", b'{"sym":"ACME","qty":250}', True),
        ("/sym = 'ACME' AND /qty > 200", b'{"sym":"ACME","qty":150}', False),
        ("/qty/2 = 125", b'{"qty":250}', False),
        ("/qty / 2 = 125", b'{"qty":250}', True),
        ("/a*/b", b'{"a":2,"b":3}', 6),
        ("/a-1", b'{"a-1":7,"a":1}', 7),
        ("/a - 1", b'{"a-1":7,"a":1}', 0),
        ("-5 % 3", b"{}", -2),
        ("5 % -3", b"{}", 2),
        ("1 - 2 - 3", b"{}", -4),
        ("2 + 3 * 4", b"{}", 14),
        ("1 < 2 = 1", b"{}", False),
        ("(1 < 2) = 1", b"{}", True),
        ("/a OR /b = 1", b'{"b":1}', None),
        ("/b = 1 OR /a", b'{"b":1}', True),
        ("NOT (/b = 2 AND /a)", b'{"b":1}', True),
        ("NOT (/a AND /b = 2)", b'{"b":1}', None),
        ("/nope OR 1 OR 1", b"{}", None),
        ("0 OR 1 OR /nope", b"{}", True),
        ("1 AND 1 AND 0 AND /nope", b"{}", False),
        ("IF(/qty > 100, 'big', 'small')", b'{"qty":250}', b"big"),
        ("IF(/nope > 100, 1, 0)", b"{}", 0),
        ("IF(/a, IF(/b, 1, 2), IF(/b, 3, 4)) + 10", b'{"a":1,"b":0}', 12),
        ("IF(/a, IF(/b, 1, 2), IF(/b, 3, 4)) + 10", b'{"b":1}', 13),
        ("IF(1, /tags, NULL) = 'new'", b'{"tags":["hot","new"]}', False),
        ("IF(1, /tags, NULL) = 'hot'", b'{"tags":["hot","new"]}', True),
        ("IF(0, NULL, /tags) = 'new'", b'{"tags":["hot","new"]}', False),
        ("IF(1, /o, 0) IS NULL", b'{"o":{"k":1}}', True),
        ("IF(1, /o[0], 0) IS NULL", b'{"o":[{"k":1}]}', True),
        ("/o IS NULL", b'{"o":{"k":1}}', False),
        ("IF(1, /tags[1], NULL)", b'{"tags":["hot","new"]}', b"new"),
        ("/tags = 'new'", b'{"tags":["hot","new"]}', True),
        ("/nums[1]", b'{"nums":[3,9,27]}', 9),
        ("/o/c[1]/k", b'{"o":{"c":[{"k":"a"},{"k":"b"}]}}', b"b"),
        ("'\\x41\\102\\t' = 'AB\\t'", b"{}", True),
        (r"/s LIKE '(.)\1'", b'{"s":"book"}', True),
        ("/s LIKE r'C++'", b'{"s":"C++11"}', True),
        ("/s LIKE r'C++'", b'{"s":"CCC"}', False),
        ("REGEXP_REPLACE(/code, '^0+', '')", b'{"code":"0042"}', b"42"),
        # §10.3: groups in the replacement; §2.2: in a normal string `\1` is the digit there.
        ("REGEXP_REPLACE(/s, '(.)(.)', '$2$1')", b'{"s":"abcd"}', b"badc"),
        (r"REGEXP_REPLACE(/s, '(.)(.)', r'\2\1')", b'{"s":"abcd"}', b"badc"),
        (r"REGEXP_REPLACE(/s, '(.)(.)', '\\2\\1')", b'{"s":"abcd"}', b"badc"),
        (r"REGEXP_REPLACE(/s, '(.)(.)', '\2\1')", b'{"s":"abcd"}', b"2121"),
        ("REGEXP_MATCH(/sym, '[C-M]+')", b'{"sym":"ACME"}', b"CME"),
        ("/a IN (/b * 2, 'x')", b'{"a":4,"b":2}', True),
        ("/a BETWEEN 1 AND 3 AND /b NOT BETWEEN 1 AND 3", b'{"a":2,"b":4}', True),
        ("18446744073709551615 > 9223372036854775807", b"{}", True),
        ("-9223372036854775808", b"{}", -(2**63)),
        ("REVERSE(SUBSTR('fandango', 5))", b"{}", b"ogna"),
        ("if(/a is not null, /a, -1) >= 0 and coalesce(/b, 'z') = 'z'", b'{"a":0}', True),
    ],
)
def test_evaluated(text: str, message: bytes, value: object) -> None:
    result = evaluated(text, message)
    assert result == value
    assert isinstance(result, bool) is isinstance(value, bool)
