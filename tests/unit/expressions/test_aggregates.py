"""Aggregates and the fields beside them, by the lines of expressions.md §10.12.

Included are the behaviours of its §15, and of sow.md, that need no SOW.
"""

import json
import math
from collections.abc import Sequence
from fractions import Fraction

import pytest

from amps._core.expressions.aggregates import Group
from amps._core.expressions.machine import UserFunction
from amps._core.values.fields import MessageContext
from amps.expressions import (
    ExpressionError,
    Functions,
    Projection,
    Usage,
    compile_expression,
    parse_field_constructor,
)
from tests.support.aggregates import AGGREGATES, Grouped, aggregated, json_values
from tests.support.reference_values import same

NUMERIC = ("SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP")


def of(function: str, *values: str) -> object:
    """An aggregate over /v, whose values are given as JSON."""
    found = aggregated([f"{function}(/v)"], *json_values(*values))[0]
    return found if found is None else (type(found), found)


def same_values(found: Sequence[object], expected: Sequence[object]) -> bool:
    return all(map(same, found, expected)) and len(found) == len(expected)


def refused(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse_field_constructor(text, Usage.PROJECTION)
    return caught.value


# The behaviours with numbers


def test_rows_of_the_reference() -> None:
    """10.12, 15.49"""
    rows = [b'{"qty":5}', b'{"qty":15}', b'{"qty":30}']
    fields = ["SUM(/qty)", "SUM(IF(/qty > 10, 1, 0))", "SUM(IF(/qty > 10, /qty, NULL))"]
    assert aggregated(fields, *rows) == [50, 2, 45]


def test_nulls_are_left_out() -> None:
    """15.50"""
    fields = ["COUNT(/v)", "SUM(/v)", "AVG(/v)", "MIN(/v)", "MAX(/v)"]
    assert aggregated(fields, *json_values("1", "null", "3")) == [2, 4, 2.0, 1, 3]


def test_equal_values_of_several_types() -> None:
    """15.50"""
    assert of("COUNT_DISTINCT", "1", '"1"', "1.0", "true") == (int, 1)
    assert of("COUNT_DISTINCT", "1", "2", '"a"', '"A"', "null") == (int, 4)


def test_numbers_and_strings_mixed() -> None:
    """15.50"""
    assert aggregated(["MAX(/v)", "MIN(/v)"], *json_values("5", '"b"', '"a"')) == [b"b", 5]


def test_value_of_the_last_message() -> None:
    """15.51, SOW 51"""
    grouped = Grouped("/status AS /status", "COUNT(1)")
    grouped.add(b'{"status":"new"}', b'{"status":"done"}')
    assert grouped.values() == [b"done", 2]
    grouped.remove(b'{"status":"done"}')
    assert grouped.values() == [b"done", 1]
    grouped.add(b'{"status":"new"}').remove(b'{"status":"new"}')
    assert grouped.values() == [b"new", 1]
    grouped.add(b"{}")
    assert grouped.values() == [None, 2]


def test_weighted_average_is_not_cut() -> None:
    """15.52, 14.2"""
    assert aggregated(["SUM(/q * /p) / SUM(/q)"], b'{"q":1,"p":10}', b'{"q":2,"p":11}') == [32 / 3]


def test_not_a_number_in_messages() -> None:
    """15.53"""
    for name, message, expected in (
        ("json", b'{"v":%s}', b'{"s":null}'),
        ("nvfix", b"v=%s", b"s=0\x01"),
    ):
        grouped = Grouped("SUM(/v) AS /s", message_type=name)
        text = b'"x"' if name == "json" else b"x"
        grouped.add(message % b"1", message % text, message % b"3")
        assert grouped.built() == expected
        grouped.remove(message % text)
        assert grouped.values() == [4]


def test_example_of_aggregated_queries() -> None:
    """SOW 57"""
    rows = [b'{"sym":"XY","px":%s}' % price for price in (b"20.5", b"19.25", b"19", b"21.75")]
    grouped = Grouped("MAX(/px) AS /hi", "/sym as /s").add(*rows)
    assert json.loads(grouped.built()) == {"s": "XY", "hi": 21.75}
    assert json.loads(grouped.add(b'{"sym":"XY","px":30}').built())["hi"] == 30


def test_values_follow_the_messages_of_a_group() -> None:
    """SOW 49"""
    grouped = Grouped("COUNT(/id)", "SUM(/n)").add(b'{"id":1,"n":5}', b'{"id":2,"n":7}')
    assert grouped.values() == [2, 12]
    assert grouped.remove(b'{"id":2,"n":7}').add(b'{"id":2,"n":8}').values() == [2, 13]
    assert grouped.remove(b'{"id":1,"n":5}').values() == [1, 8]
    assert grouped.group.records == 1


def test_large_integer_of_the_last_message() -> None:
    """15.44"""
    assert Grouped("/v").add(b'{"v":18446744073709551615}').built() == b'{"f0":18446744073709551615}'


def test_topic_of_the_last_message() -> None:
    """15.61, 10.9"""
    context = MessageContext()
    context.set("topic_name", b"orders")
    grouped = Grouped("TOPIC_NAME()", "CONCAT(TOPIC_NAME(), COUNT(1))").add(b"{}", context=context)
    context.clear()
    assert grouped.values() == [b"orders", b"orders1"]


# The lines of 10.12


@pytest.mark.parametrize("function", AGGREGATES)
def test_no_value(function: str) -> None:
    """10.12: COUNT and COUNT_DISTINCT are 0, others NULL. NULLs are missing, null, empty text, array and object."""
    for values in ((), ("null",), ('""', "[]", '{"a":1}')):
        expected = (int, 0) if function.startswith("COUNT") else None
        assert of(function, *values) == expected
    assert aggregated([f"{function}(/v)"], b"{}") == [0 if function.startswith("COUNT") else None]


@pytest.mark.parametrize("function", NUMERIC)
@pytest.mark.parametrize("other", ['"x"', '"1 "', "1e999"])
def test_a_value_that_is_no_number_makes_nan_until_it_is_removed(function: str, other: str) -> None:
    """10.12: SUM and AVG are NaN if any value is non-numeric; an infinite sum is no valid number either (4.1)"""
    grouped = Grouped(f"{function}(/v)").add(*json_values("1", other, other, "3"))
    assert same_values(grouped.values(), [math.nan])
    assert same_values(grouped.remove(*json_values(other)).values(), [math.nan])
    expected = aggregated([f"{function}(/v)"], *json_values("1", "3"))
    assert grouped.remove(*json_values(other)).values() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("1", "2"), 3),
        (("1", "2.0"), 3.0),
        (("1", '"2"'), 3.0),
        (("true", "2"), 3),
        (("9223372036854775807", "1"), 2**63),
        (("18446744073709551615", "1"), 2.0**64),
        (("18446744073709551615", "1", "-1"), 2**64 - 1),
        (("-9223372036854775808", "-1"), -(2.0**63)),
        (("-9223372036854775808",), -(2**63)),
        (("0.1",) * 10, 1.0),
        (("1e300", "1", "-1e300"), 1.0),
        (("1.7e308", "1.7e308", "-1.7e308"), 1.7e308),
        (("1.7e308", "1.7e308"), math.nan),
        (("9007199254740993", "0.5"), 9007199254740994.0),
    ],
)
def test_sum(values: tuple[str, ...], expected: float) -> None:
    """10.12, SOW decision 14: an integer if all values are and the sum fits; a double is rounded once, at the end"""
    found = aggregated(["SUM(/v)"], *json_values(*values))[0]
    assert type(found) is type(expected)
    assert same(found, expected)


def test_sum_of_a_format_without_types() -> None:
    """4: the type is inferred from the text"""
    assert Grouped("SUM(/v)", message_type="nvfix").add(b"v=1", b"v=2").values() == [3]
    found = Grouped("SUM(/v)", message_type="nvfix").add(b"v=1", b"v=2.50").values()
    assert found == [3.5]


def test_average() -> None:
    """10.12: always a double, of non-NULL values"""
    assert of("AVG", "1", "3", "null") == (float, 2.0)
    assert of("AVG", "1", "2") == (float, 1.5)
    assert of("AVG", "0.1", "0.1", "0.1") == (float, 0.1)
    assert of("AVG", "1.7e308", "1.7e308") == (float, 1.7e308)


def test_any_is_the_lowest() -> None:
    """10.12: the reference leaves open which value; here it is always the lowest"""
    assert of("ANY", '"b"', "7", '"a"') == (int, 7)
    assert of("ANY", '"b"', '"a"') == (bytes, b"a")


@pytest.mark.parametrize("text", ["COUNT(1)", "COUNT(*)", "COUNT('x')"])
def test_count_of_records(text: str) -> None:
    """10.12, 14.12"""
    assert aggregated([text], b"{}", b'{"v":1}') == [2]


def test_nan_is_a_value() -> None:
    """10.12 counts non-NULL values; NaN is one, is equal to itself only, and has no place in the order"""
    nan = "IF(/v = 'nan', NAN_VALUE(), /v)"
    functions = ("COUNT", "COUNT_DISTINCT", "MIN", "MAX", "ANY", "UNIQUE", "GROUP_CONCAT")
    grouped = Grouped(*(f"{function}({nan})" for function in functions))
    grouped.add(*json_values('"nan"', '"nan"'))
    assert same_values(grouped.values(), [2, 1, math.nan, math.nan, math.nan, math.nan, b"nan"])
    grouped.add(*json_values("4"))
    assert same_values(grouped.values(), [3, 2, 4, 4, 4, None, b"4,nan"])
    grouped.remove(*json_values('"nan"', '"nan"'))
    assert same_values(grouped.values(), [1, 1, 4, 4, 4, 4, b"4"])


def test_concatenation() -> None:
    """10.12: the distinct values, joined by a comma or the given text; sorted, whatever order they were added in"""
    values = json_values('"b"', "10", "9", '"a"', "9.0", "null", '"b"')
    fields = ["GROUP_CONCAT(/v)", "GROUP_CONCAT(/v, ' | ')", "GROUP_CONCAT(/v, '')"]
    assert aggregated(fields, *values) == [b"9,10,a,b", b"9 | 10 | a | b", b"910ab"]
    assert aggregated(fields, *reversed(values)) == [b"9,10,a,b", b"9 | 10 | a | b", b"910ab"]


def test_concatenation_keeps_the_text_of_numbers() -> None:
    """4.2: a number taken straight from a text message keeps its original text"""
    grouped = Grouped("GROUP_CONCAT(/v)", "MAX(/v)").add(*json_values("1.50", "2.0"))
    assert grouped.values() == [b"1.50,2.0", 2.0]
    assert grouped.built() == b'{"f0":"1.50,2.0","f1":2.0}'


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        (("10", "9"), 9, 10),
        (("-1", "-1.5"), -1.5, -1),
        (('"B"', '"a"', '"ab"'), b"B", b"ab"),
        (("1e999", '"!"', "5"), 5, b"!"),
        (('"7"', "10", "9"), b"7", 10),
        (("18446744073709551615", "9223372036854775807"), 2**63 - 1, 2**64 - 1),
        (("9007199254740993", "9007199254740992.0"), 9007199254740992.0, 9007199254740993),
        (('"2"', "2", "2.0"), 2, 2),
        (("2.0", '"2"', "true", "1.0"), 1.0, 2.0),
    ],
)
def test_least_and_greatest(values: tuple[str, ...], least: object, greatest: object) -> None:
    """10.12, SOW 19.3. Of equal values, an integer is preferred to a double, and a double to text."""
    assert of("MIN", *values) == (type(least), least)
    assert of("MAX", *values) == (type(greatest), greatest)


def test_least_and_greatest_after_removals() -> None:
    grouped = Grouped("MIN(/v)", "MAX(/v)").add(*json_values("1", "2", "3", "3"))
    assert grouped.remove(*json_values("3")).values() == [1, 3]
    assert grouped.remove(*json_values("3")).values() == [1, 2]
    assert grouped.remove(*json_values("1")).values() == [2, 2]
    assert grouped.remove(*json_values("2")).values() == [None, None]


def test_deviations() -> None:
    """10.12: of a population and of a sample; a sample of one value has none"""
    values = json_values("2", "4", "4", "4", "5", "5", "7", "9")
    assert aggregated(["STDDEV_POP(/v)", "STDDEV_SAMP(/v)"], *values) == [2.0, math.sqrt(32 / 7)]
    assert aggregated(["STDDEV_POP(/v)", "STDDEV_SAMP(/v)"], *values[:1]) == [0.0, None]
    large = [str(10**15 + number) for number in (4, 7, 13, 16)]
    assert of("STDDEV_SAMP", *large) == (float, math.sqrt(30))


def test_unique() -> None:
    """10.12, SOW decision 15"""
    assert of("UNIQUE", "1", "1.0", '"1"', "null") == (int, 1)
    assert of("UNIQUE", '"a"', '"a"') == (bytes, b"a")
    assert of("UNIQUE", '"a"', '"b"') is None


@pytest.mark.parametrize("function", AGGREGATES)
def test_first_element_of_an_array(function: str) -> None:
    """14.10"""
    assert aggregated([f"{function}(/v)"], b'{"v":[4,9]}', b'{"v":[5]}') == aggregated(
        [f"{function}(/v)"], *json_values("4", "5")
    )


# Around aggregates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SUM(/a) / 2", 1.5),
        ("IF(COUNT(/a) > 1, SUM(/a), 0) / 2", 1.5),
        ("IF(COUNT(/a) > 9, 0, SUM(/a)) / 2", 1.5),
        ("IF(STREQUAL(SUM(/a), '3'), 5, 0) / 2", 2),
        ("ABS(-SUM(/a)) / 2", 1.5),
        ("SUM(/a) + 1", 4.0),
        ("-SUM(/a)", -3),
        ("IF(COUNT(/a) > 1, SUM(/a), 0)", 3),
        ("CONCAT(SUM(/a), '!')", b"3!"),
        ("COUNT(/a) / 4", 0),
        ("IF(SUM(/a) / 2 = 1.5, 1, 0) / 2", 0),
        ("(SUM(/a) = 3) + 1", 2),
        ("CONCAT(IF(SUM(/a) IN (3), SUM(/a), 0) , '')", b"3"),
        ("SUM(/a) LIKE '^3$'", True),
        ("MAX(/a) / 4", 0),
    ],
)
def test_sum_in_arithmetic(text: str, expected: object) -> None:
    """14.2: a sum is floating point in further arithmetic, an integer everywhere else; COUNT stays an integer"""
    found = aggregated([text], b'{"a":1}', b'{"a":2}')[0]
    assert (type(found), found) == (type(expected), expected)


def test_large_sum_in_comparisons() -> None:
    """14.2: outside arithmetic nothing is rounded"""
    values = json_values("9007199254740992", "1")
    assert aggregated(["SUM(/v) = 9007199254740993", "SUM(/v) = 9007199254740992"], *values) == [True, False]
    assert aggregated(["1 + (SUM(/v) = 9007199254740992)"], *values) == [1]


def test_conditions_around_aggregates() -> None:
    """SOW 19: the original server computed these wrongly on live updates"""
    grouped = Grouped("IF(SUM(/v) > 10, SUM(/v), 'few')", "IF(SUM(/v) IS NAN, 0, SUM(/v))")
    assert grouped.add(*json_values("4", "6")).values() == [b"few", 10]
    assert grouped.add(*json_values("5")).values() == [15, 15]
    assert grouped.remove(*json_values("5")).values() == [b"few", 10]
    assert grouped.add(*json_values('"x"')).values() == [b"few", 0]


def test_fields_beside_aggregates() -> None:
    """10.12: they have their value in the last message; operators compare all elements of an array (9)"""
    fields = ["SUM(/a) + /a", "IF(SUM(/a) = /d, 1, 0)", "/d[1] = SUM(/a)", "IF(1 = 1, /d, SUM(/a))", "/d"]
    assert aggregated(["/d", "/d[0] = SUM(/a)", "/d = SUM(/a)"], b'{"a":3,"d":[7,3]}') == [7, False, True]
    grouped = Grouped(*fields).add(b'{"a":1,"d":[8]}', b'{"a":2,"d":[7,3]}')
    assert grouped.values() == [5.0, 1, True, 7, 7]
    assert grouped.remove(b'{"a":1,"d":[8]}').values() == [4.0, 0, False, 7, 7]


def test_object_beside_aggregates() -> None:
    """14.4: an object has no value, but is not NULL"""
    grouped = Grouped("/o", "IF(COUNT(1) = 1, /o IS NULL, /o)", "/o IS NULL").add(b'{"o":{"k":1}}')
    assert grouped.values() == [None, False, False]
    assert grouped.built() == b'{"f0":null,"f1":false,"f2":false}'


def test_constants_and_functions_without_fields() -> None:
    assert aggregated(["7", "CONCAT('a', 'b')", "SUM(2)", "MAX('x')"], b"{}", b"{}") == [7, b"ab", 4, b"x"]


def test_pattern_around_an_aggregate() -> None:
    fields = ["REGEXP_REPLACE(GROUP_CONCAT(/v), '[a-c]', /w)", "GROUP_CONCAT(/v) LIKE 'a,b'"]
    assert aggregated(fields, b'{"v":"b","w":"-"}', b'{"v":"a","w":"_"}') == [b"_,_", True]


def test_conditions_within_aggregates() -> None:
    """SOW 19.3"""
    rows = [b'{"ok":1,"ms":10}', b'{"ok":0,"ms":99}', b'{"ok":1,"ms":20}']
    assert aggregated(["AVG(IF(/ok = 1, /ms, NULL))"], *rows) == [15.0]


def test_equal_parts_are_computed_once() -> None:
    fields = ["SUM(/a)", "sum( /a ) / COUNT(/a)", "AVG(/a)", "/b AS /x", "IF(1=1,/b,MAX(/a))"]
    projection = Grouped(*fields).projection
    assert len(projection._parts) == 6  # four aggregates, 1=1 and /b
    assert projection.fields == ((b"a",), (b"b",))


def test_users_functions_within_and_around() -> None:
    double = UserFunction("DOUBLED", lambda value: value * 2, 1, 1)
    grouped = Grouped("SUM(DOUBLED(/v))", "DOUBLED(SUM(/v))", functions=Functions(own={"DOUBLED": double}))
    assert grouped.add(*json_values("1", "2")).values() == [6, 6]
    assert grouped.projection.beyond_content == {"DOUBLED"}


# Projections


def test_fields_missing_in_a_message() -> None:
    grouped = Grouped("SUM(MESSAGE_SIZE())", "MAX(AMPS_INSTANCE_NAME())", "SOW_KEY()", "SUM(/a)")
    assert grouped.projection.beyond_content == {"MESSAGE_SIZE"}
    context = MessageContext()
    context.set("message_size", 10)
    grouped.add(b"{}", context=context).add(b"{}", context=context)
    assert grouped.remove(b"{}", context=context).values()[0] == 10


def test_hints() -> None:
    """11"""
    grouped = Grouped("SUM(/a) AS /s HINT OPTIONAL", "MAX(/a) AS /m")
    assert grouped.add(b"{}").built() == b'{"m":null}'
    assert grouped.add(b'{"a":2}').built() == b'{"s":2,"m":2}'
    with pytest.raises(ValueError, match="SET_CURRENT"):
        Grouped("SUM(/a) AS /s HINT SET_CURRENT")


@pytest.mark.parametrize("text", ["[t]./a AS /a", "SUM([t]./a) AS /s", "SUM(/a) + [t]./b AS /s"])
def test_fields_of_joined_topics(text: str) -> None:
    constructor = parse_field_constructor(text, Usage.PROJECTION)
    assert constructor.expression.program is None
    assert constructor.expression.aggregation is None
    with pytest.raises(ValueError, match="joined topics"):
        Projection([constructor])


def test_only_aggregating_expressions_have_an_aggregation() -> None:
    assert compile_expression("/a + 1", Usage.PROJECTION).aggregation is None
    assert compile_expression("SUM(/a)", Usage.PROJECTION).aggregation is not None


def test_two_fields_with_the_same_destination() -> None:
    """11: the later one wins"""
    assert Grouped("SUM(/a) AS /x", "MAX(/a) AS /x").add(b'{"a":2}', b'{"a":3}').built() == b'{"x":3}'


def test_builder_of_other_fields() -> None:
    grouped = Grouped("SUM(/a) AS /s", "MAX(/a) AS /m").add(b'{"a":2}')
    with pytest.raises(ValueError, match="a builder of 1 fields for 2 outputs"):
        grouped.group.build(grouped.type.builder([(b"s",)]))


def test_several_groups_of_one_projection() -> None:
    grouped = Grouped("SUM(/v)", "GROUP_CONCAT(/v)", "/v")
    other = Group(grouped.bound)
    grouped.add(*json_values("1", '"a"'))
    other.add(grouped.read(b'{"v":5}'))
    assert other.values() == [5, b"5", 5]
    assert same_values(grouped.values(), [math.nan, b"1,a", b"a"])


# Refusals


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("SUM() AS /a", 0, "SUM takes 1 argument, not 0"),
        ("1 + MAX(/a, /b) AS /a", 4, "MAX takes 1 argument, not 2"),
        ("GROUP_CONCAT(/a, ',', 1) AS /a", 0, "GROUP_CONCAT takes 1 to 2 arguments, not 3"),
        ("GROUP_CONCAT(/a, /b) AS /a", 17, "the delimiter of GROUP_CONCAT must be a string in quotes"),
        ("GROUP_CONCAT(/a, 1) AS /a", 17, "the delimiter of GROUP_CONCAT must be a string in quotes"),
        ("SUM(/a)", 0, "this value needs a name: ... AS /field"),
        ("SUM(AVG(/a)) AS /a", 4, "SUM cannot aggregate the result of AVG"),
    ],
)
def test_refused_texts(text: str, position: int, reason: str) -> None:
    """10.12, 11, 14.7"""
    error = refused(text)
    assert (error.reason, error.position) == (reason, position)


@pytest.mark.parametrize("function", AGGREGATES)
def test_arguments_must_be_deterministic(function: str) -> None:
    """10.1, 15.55; beside an aggregate they need not be"""
    assert refused(f"{function}(UNIX_TIMESTAMP()) AS /a").position == len(function) + 1
    parse_field_constructor(f"UNIX_TIMESTAMP() - {function}(/a) AS /a", Usage.PROJECTION)


@pytest.mark.parametrize("usage", [Usage.FILTER, Usage.FIELD, Usage.ENRICHMENT])
@pytest.mark.parametrize("function", AGGREGATES)
def test_outside_projections(function: str, usage: Usage) -> None:
    """10.12, 15.54"""
    with pytest.raises(ExpressionError, match=f"{function} aggregates"):
        compile_expression(f"1 < {function}(/a)", usage)


def test_exactness_of_a_long_history() -> None:
    """Ten thousand doubles of all sizes are added and removed; one stays."""
    values = [math.ldexp(number * 0.7310585 + 1, number % 600 - 300) for number in range(10_000)]
    messages = [b'{"v":%s}' % repr(value).encode() for value in values]
    grouped = Grouped("SUM(/v)", "AVG(/v)", "STDDEV_POP(/v)").add(*messages)
    total = sum(map(Fraction, values))
    assert grouped.values()[:2] == [float(total), float(total / len(values))]
    assert grouped.remove(*messages[1:]).values() == [values[0], values[0], 0.0]
