"""Functions beside the built-in ones: an instance's own, and those of the legacy module (expressions.md §10.11)."""

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator

import pytest

from amps._core.expressions.machine import OPCODES, Program, UserFunction
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues
from amps.expressions import (
    ExpressionError,
    Functions,
    Usage,
    compile_expression,
    name_of_own,
    parse_field_constructor,
)
from tests.support.expressions import Result, delivers, evaluate

LEGACY = Functions(legacy=True)


def with_own(
    name: str, implementation: Callable[..., object], minimum: int = 0, maximum: int | None = None
) -> Functions:
    return Functions(own={name: UserFunction(name, implementation, minimum, maximum)})


def value_of(text: str, functions: Functions, message: bytes = b"{}") -> Result:
    return evaluate(compile_expression(text, functions=functions), message)


def test_an_own_function_is_called_with_first_values() -> None:
    """expressions.md §10.11, §9: an array is passed as its first element; a container has no value."""
    seen: list[tuple[object, ...]] = []
    functions = with_own("SEEN", lambda *given: seen.append(given))
    message = b'{"a":[7,8],"b":"t\\u0041","c":{"d":1},"e":null,"f":1.5,"g":true,"h":18446744073709551615}'
    assert value_of("seen(/a, /b, /c, /e, /f, /g, /h, /nope, 'x', 1 + 1)", functions, message) is None
    assert seen == [(7, b"tA", None, None, 1.5, True, 2**64 - 1, None, b"x", 2)]
    assert value_of("Seen()", functions) is None
    assert seen[1:] == [()]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (2**64 - 1, 2**64 - 1),
        (2**64, float(2**64)),
        (-(2**63) - 1, float(-(2**63) - 1)),
        (2.5, 2.5),
        (b"\xff", b"\xff"),
        ("\u00e4", b"\xc3\xa4"),
        ("", None),
        (b"", None),
    ],
)
def test_the_result_of_an_own_function_is_a_value(given: object, value: Result) -> None:
    made = value_of("F()", with_own("F", lambda: given))
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("given", [[1], (), object(), 10**400, "\ud800"])
def test_a_result_that_is_no_value_is_null_and_counted(given: object) -> None:
    functions = with_own("F", lambda: given)
    assert value_of("F()", functions) is None
    assert functions.own["F"].failures == 1
    assert functions.own["F"].last_failure


def test_a_result_that_is_too_long_is_null_and_counted() -> None:
    """expressions.md §10.11: a result that is too long is handled like any other invalid result."""
    functions = with_own("F", lambda: b"x" * 2000)
    program = compile_expression("F() IS NULL", functions=functions).program
    assert program is not None
    fields, values = FieldSet(), FieldValues(1000)
    assert JsonExtractor().read(b"{}", fields, values)
    assert program.bind(fields).matches(values)
    assert functions.own["F"].failures == 1
    assert functions.own["F"].last_failure.startswith("MemoryError: ")


def test_a_failing_function_gives_null_and_the_reason() -> None:
    """One message must not disable an expression that works for others."""
    functions = with_own("HALF", lambda value: 10 // value, 1, 1)
    expression = compile_expression("HALF(/a) = 5 OR /b = 1", functions=functions)
    assert delivers(expression, b'{"a":2}')
    assert not delivers(expression, b'{"a":0}')
    assert delivers(expression, b'{"a":0,"b":1}')
    function = functions.own["HALF"]
    assert function.failures == 2
    assert function.last_failure.startswith("ZeroDivisionError: ")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "raised", [SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError, Unspeakable]
)
def test_a_function_cannot_end_the_process_or_its_event_loop(raised: type[BaseException]) -> None:
    def ends() -> None:
        raise raised

    functions = with_own("F", ends)
    assert value_of("F()", functions) is None
    assert functions.own["F"].last_failure.startswith(f"{raised.__name__}: ")


def test_own_functions_nest_and_share_an_expression() -> None:
    functions = Functions(
        own={
            "ADD": UserFunction("ADD", lambda left, right: left + right, 2, 2),
            "TWICE": UserFunction("TWICE", lambda value: value * 2, 1, 1),
        }
    )
    text = "ADD(TWICE(/a), UPPER(TWICE(/s)) = 'XX') + twice(ADD(1, /a))"
    assert value_of(text, functions, b'{"a":3,"s":"x"}') == 6 + 1 + 8
    assert value_of("IF(/a > 1, TWICE(/a), ADD(/a, 1))", functions, b'{"a":1}') == 2


def test_own_functions_in_constructed_fields() -> None:
    functions = with_own("F", lambda: 5)
    made = parse_field_constructor("F() + 1 AS /six", Usage.ENRICHMENT, functions)
    assert evaluate(made.expression) == 6
    assert parse_field_constructor("SUM(F()) AS /sum", Usage.PROJECTION, functions).expression.program is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("F()", "F takes 1 to 2 arguments, not 0"),
        ("F(1, 2, 3)", "F takes 1 to 2 arguments, not 3"),
        ("FF(1)", "there is no function FF, but there is F"),
        ("YEAR(1)", "there is no function YEAR without the module libamps_udf_legacy_compatibility.so"),
    ],
)
def test_a_wrong_call_is_refused(text: str, reason: str) -> None:
    """expressions.md §10: unknown function or wrong number of arguments."""
    with pytest.raises(ExpressionError) as refusal:
        compile_expression(text, functions=with_own("F", lambda *_: 1, 1, 2))
    assert refusal.value.reason.startswith(reason)


def test_an_expression_calls_a_limited_number_of_own_functions() -> None:
    own = {f"F{number}": UserFunction(f"F{number}", lambda: 1, 0, 0) for number in range(4097)}
    text = "COALESCE(" + "),COALESCE(".join(
        ",".join(f"{name}()" for name in list(own)[at : at + 200]) for at in range(0, 4097, 200)
    )
    with pytest.raises(ExpressionError, match="at most 4096 functions of the instance"):
        compile_expression(f"COALESCE({text}))", functions=Functions(own=own))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("1f", "begins with a letter"),
        ("f-g", "letters, digits and _"),
        ("\u00e4", "letters"),
        ("upper", "UPPER is a built-in function"),
        ("Year", "YEAR is a built-in function"),
        ("if", "IF is a built-in function"),
        ("not", "NOT is a built-in function"),
        ("null", "NULL is a built-in function"),
        ("f", "F exists already"),
    ],
)
def test_names_that_are_taken(written: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        name_of_own(written, with_own("F", lambda: 1))


@pytest.mark.parametrize("name", ["in", "and", "like", "of", "current", "mod", "hint", "nan", "r", "G_2"])
def test_words_of_operators_may_name_a_function(name: str) -> None:
    functions = Functions()
    made = name_of_own(name, functions)
    assert value_of(f"{name}(4) + 1", with_own(made, lambda value: value, 1, 1)) == 5


def test_the_machine_refuses_an_unknown_function() -> None:
    with pytest.raises(ValueError, match="no such user function, at instruction 0"):
        Program([OPCODES["CALL_USER"], OPCODES["END"]], [], [], [], 10)
    with pytest.raises(TypeError):
        Program([OPCODES["CALL_USER"], OPCODES["END"]], [], [], [], 10, [len])  # type: ignore[list-item]
    function = UserFunction("F", lambda *given: len(given))
    with pytest.raises(ValueError, match="more from the stack"):
        Program([OPCODES["CALL_USER"] | 1 << 20, OPCODES["END"]], [], [], [], 10, [function])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("YEAR(1264413840)", 2010),
        ("MONTH(1264413840)", 1),
        ("DAY(1264413840)", 25),
        ("DATE_UTC(1264413840)", 1264377600),
        ("DATE_UTC(1264413840.75)", 1264377600),
        ("DATE_UTC('1264413840')", 1264377600),
        ("DATE_UTC(0)", 0),
        ("DATE_UTC(-1)", -86400),
        ("DATE_UTC(-0.5)", -86400),
        ("YEAR(-0.5)", 1969),
        ("DAY(951782400)", 29),
        ("YEAR(NULL)", None),
        ("YEAR('x')", None),
        ("YEAR(1e300)", None),
        ("YEAR(-1e300)", None),
        ("DATE(NAN_VALUE())", None),
        ("DATE_UTC(1e12)", None),
    ],
)
def test_legacy_functions_in_utc(text: str, value: Result) -> None:
    """expressions.md §10.11"""
    made = value_of(text, LEGACY)
    assert made == value
    assert type(made) is type(value)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set the time zone of the process for a test."""

    def set_to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


def test_legacy_functions_in_local_time(zone: Callable[[str], None]) -> None:
    """expressions.md §10.11: offsets east of Greenwich are positive, and days are those of the zone."""
    zone("XST-5:30")
    assert value_of("TIMEZONEOFFSET()", LEGACY) == 5 * 3600 + 1800
    assert value_of("DATE(1264413840)", LEGACY) == 1264377600 - 19800
    assert value_of("DATE(1264444200)", LEGACY) == 1264377600 + 86400 - 19800
    zone("XST+8")
    assert value_of("TIMEZONEOFFSET()", LEGACY) == -8 * 3600
    assert value_of("DATE(1264377600)", LEGACY) == 1264377600 - 86400 + 8 * 3600


def test_a_legacy_date_on_the_day_of_a_change_of_the_clock(zone: Callable[[str], None]) -> None:
    """With summer time at noon, the day may begin in winter time: 2024-03-31, 23:00 UTC of the day before."""
    zone("CET-1CEST,M3.5.0,M10.5.0/3")
    assert value_of("DATE(1711886400)", LEGACY) == 1711839600
    assert value_of("DATE(1711886400) - DATE_UTC(1711886400)", LEGACY) == -3600


def test_legacy_today(zone: Callable[[str], None]) -> None:
    zone("XST-5:30")
    before = time.time()
    utc = value_of("TODAY_UTC()", LEGACY)
    local = value_of("TODAY()", LEGACY)
    after = time.time()
    assert utc in {int(moment // 86400) * 86400 for moment in (before, after)}
    assert local in {int((moment + 19800) // 86400) * 86400 - 19800 for moment in (before, after)}


def test_legacy_functions_count_as_deterministic() -> None:
    """expressions.md §10.1"""
    assert compile_expression("TODAY() > 0", Usage.DETERMINISTIC, LEGACY).deterministic
