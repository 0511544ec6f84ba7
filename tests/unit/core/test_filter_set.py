"""Sets of filters against each filter by itself: the index of constants must never change a result."""

import json
from collections.abc import Callable
from string import ascii_letters
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from amps._core.expressions.machine import EvaluationContext, Filter, FilterSet
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import Extractor, FieldSet, FieldValues, MessageContext, searches_given_up
from amps.expressions.filters import CONSTANTS_MAX, compile_filter
from amps.messages import make_message_types, standard_settings

TYPES = make_message_types(standard_settings().values())
EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

# Constants that are equal or nearly equal by one rule or another (expressions.md §6.1, §14.3).
CONSTANTS = [
    "1", "1.0", "'1'", "'1.0'", "'01'", "-1", "'-1'", "0", "'0'", "-0.0", "1.5", "'1.50'", "'x'", "'X'", "''", "NULL",
    "18446744073709551615", "'18446744073709551615'", "1.8446744073709552e19", "9007199254740993", "9007199254740992.0",
    "-9223372036854775808", "'true'", "'1e0'", "100", "1e2",
]  # fmt: skip
VALUES = [
    b"1", b"1.0", b'"1"', b'"1.0"', b'"01"', b"-1", b'"-1"', b"0", b"-0.0", b'"0"', b"1.5", b'"1.50"', b'"x"', b'"X"',
    b'""', b"null", b"true", b"false", b"18446744073709551615", b"1.8446744073709552e19", b"9007199254740993",
    b"9007199254740992.0", b"-9223372036854775808", b'"true"', b'"\\u0031"', b'"\\u0078"', b"{}", b'{"b":1}', b"[]",
    b"[1,2]", b'["x",[1.0]]', b"[null,0]", b"1e0", b"100", b"1e2",
]  # fmt: skip

constants = st.sampled_from(CONSTANTS)
fields = st.sampled_from(["/a", "/b", "/a[0]", "/a[1]", "/a/b"])
comparisons = st.one_of(
    st.tuples(fields, st.sampled_from(["=", "==", "!=", "<", ">="]), constants).map(" ".join),
    st.tuples(constants, st.just("="), fields).map(" ".join),
    st.builds(
        lambda field, members: f"{field} IN ({', '.join(members)})", fields, st.lists(constants, min_size=1)
    ),
    st.tuples(fields, st.sampled_from([" IS NULL", " IS NOT NULL", " LIKE '1'"])).map("".join),
)
filters = st.one_of(
    comparisons,
    st.lists(comparisons, min_size=2, max_size=3).map(" AND ".join),
    st.lists(comparisons, min_size=2, max_size=3).map(" OR ".join),
    st.lists(comparisons, min_size=1, max_size=2).map(lambda parts: f"NOT ({' AND '.join(parts)})"),
    st.tuples(comparisons, comparisons, comparisons).map(
        lambda parts: f"({parts[0]} OR {parts[1]}) AND {parts[2]}"
    ),
)
messages = st.one_of(
    st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)).map(
        lambda pair: b'{"a":' + pair[0] + b',"b":' + pair[1] + b"}"
    ),
    st.sampled_from(VALUES).map(lambda value: b'{"b":' + value + b"}"),
    st.sampled_from([b"", b"{}", b"[", b'{"a":1', b'{"a":1,"b":', b'{"a":1} x', b"nonsense", b'{"a":1,x']),
)


def evaluation(extractor: Extractor | None = None) -> EvaluationContext:
    return EvaluationContext(extractor or JsonExtractor(), FieldValues(), MessageContext(b"i", b"g"))


def by_itself(
    filter_: Filter, message: bytes, make_extractor: Callable[[], Extractor] = JsonExtractor
) -> bool:
    wanted, values = FieldSet(), FieldValues()
    program = filter_.program.bind(wanted)
    return make_extractor().read(message, wanted, values) and program.matches(values)


@EXAMPLES
@given(st.lists(filters, min_size=1, max_size=12), st.lists(messages, min_size=1, max_size=4))
@example(["/a = 1", "/a = '1'", "/a = '1.0'", "/a = '01'"], [b'{"a":1}', b'{"a":"1"}', b'{"a":1.0}'])
@example(["/a = 1", "/b = 1"], [b'{"a":1,'])
def test_filter_set_matches_as_each_filter_by_itself(texts: list[str], given_messages: list[bytes]) -> None:
    compiled = [compile_filter(text) for text in texts]
    together = FilterSet(evaluation())
    for number, filter_ in enumerate(compiled):
        together.add(filter_, number)
    for message in given_messages:
        expected = [number for number, filter_ in enumerate(compiled) if by_itself(filter_, message)]
        assert sorted(together.matching(message), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "value", [b"1", b"1.0", b"01", b"x", b"", b"1e0", b"-1", b"100", b"true", b" 1", b"1.50"]
)
@pytest.mark.parametrize("message_type", ["nvfix", "fix", "xml"])
def test_filter_set_text_formats_against_strings_compare_text(message_type: str, value: bytes) -> None:
    """expressions.md §14.3"""
    kind = TYPES[message_type]
    name, message = {
        "nvfix": ("/a", b"a=" + value + b"\x01"),
        "fix": ("/7", b"7=" + value + b"\x01"),
        "xml": ("/m/@a", b'<m a="' + value + b'"/>'),
    }[message_type]
    compiled = [compile_filter(f"{name} = {constant}") for constant in CONSTANTS]
    together = FilterSet(evaluation(kind.extractor()))
    for number, filter_ in enumerate(compiled):
        together.add(filter_, number)
    expected = [n for n, filter_ in enumerate(compiled) if by_itself(filter_, message, kind.extractor)]
    assert sorted(together.matching(message), key=str) == expected
    assert len(expected) < len(CONSTANTS)


POOL = [compile_filter(f"/a = {n % 7}{' AND /b > ' + str(n % 3) if n % 2 else ''}") for n in range(20)]
POOL += [compile_filter(f"/f{n} = 'x' OR /a > {n}") for n in range(20)]


class Members(RuleBasedStateMachine):
    """Members are added and removed. The remaining ones must match as before, also after the set was rebuilt."""

    def __init__(self) -> None:
        super().__init__()
        self.set = FilterSet(evaluation())
        self.members: list[tuple[Filter, object]] = []

    @rule(numbers=st.lists(st.integers(0, 39), min_size=1, max_size=30))
    def add(self, numbers: list[int]) -> None:
        for number in numbers:
            member = object()
            self.set.add(POOL[number], member)
            self.members.append((POOL[number], member))

    @rule(places=st.lists(st.integers(0, 999), min_size=1, max_size=30))
    def remove(self, places: list[int]) -> None:
        for place in places:
            if self.members:
                self.set.remove(*self.members.pop(place % len(self.members)))

    @invariant()
    def matches(self) -> None:
        for a in range(7):
            message = json.dumps({"a": a, "b": 2, "f3": "x"}).encode()
            expected = {id(member) for filter_, member in self.members if by_itself(filter_, message)}
            got = [id(member) for member in self.set.matching(message)]
            assert len(got) == len(set(got))
            assert set(got) == expected


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)


def many(texts: list[str]) -> FilterSet:
    made = FilterSet(evaluation())
    for number, text in enumerate(texts):
        made.add(compile_filter(text), number)
    return made


def test_filter_set_equalities_are_looked_up_not_evaluated() -> None:
    """1,000 subscriptions with different constants do not cost 1,000 evaluations."""
    together = many([f"/symbol = 'S{number}'" for number in range(1000)])
    assert together.matching(b'{"symbol":"S417"}') == [417]
    assert together.matching(b'{"symbol":"none"}') == []
    assert together.evaluations == 0
    together = many([f"/symbol = 'S{number}' AND /price > {number}" for number in range(1000)])
    assert together.matching(b'{"symbol":"S417","price":418}') == [417]
    assert together.matching(b'{"symbol":"S417","price":417}') == []
    assert together.evaluations == 2


@pytest.mark.parametrize("length", range(1, 41))
def test_filter_set_a_text_is_found_by_all_its_bytes(length: int) -> None:
    """The way of looking a text up depends on its length."""
    text = ascii_letters[:length]
    others = [text[:place] + "." + text[place + 1 :] for place in range(length)]
    together = many([f"/{field} = '{each}'" for field in "ab" for each in [text, text + ".", *others[::2]]])
    half = len(others[::2]) + 2
    assert together.matching(json.dumps({"a": text}).encode()) == [0]
    assert together.matching(json.dumps({"b": text + "."}).encode()) == [half + 1]
    for place, other in enumerate(others):
        expected = [] if place % 2 else [half + 2 + place // 2]
        assert together.matching(json.dumps({"b": other}).encode()) == expected
    assert together.matching(json.dumps({"a": text[1:], "b": "." + text}).encode()) == []
    assert together.evaluations == 0


def test_filter_set_a_number_is_looked_up_among_numbers_and_converted_strings() -> None:
    """This holds for every combination of a field's tables."""
    values = [b'"1"', b'"1.0"', b"1", b"1.0", b"2"]
    for texts, expected in [
        (["/a = '1'"], [[0], [], [0], [0], []]),
        (["/a = 1"], [[0], [0], [0], [0], []]),
        (["/a = '1'", "/a = 1"], [[0, 1], [1], [1, 0], [1, 0], []]),
        (["/a = '1.0'", "/b = 1"], [[], [0], [0], [0], []]),
    ]:
        together = many(texts)
        assert [together.matching(b'{"a":' + value + b"}") for value in values] == expected


def test_filter_set_files_under_the_rarest_equality() -> None:
    together = many([f"/kind = 'order' AND /id = {number}" for number in range(100)])
    assert together.matching(b'{"kind":"order","id":7}') == [7]
    assert together.evaluations <= 2


def test_filter_set_the_same_filter_is_evaluated_once() -> None:
    made = FilterSet(evaluation())
    filter_ = compile_filter("/price > 10")
    for number in range(100):
        made.add(filter_, number)
    assert made.matching(b'{"price":11}') == list(range(100))
    assert made.evaluations == 1


def test_filter_set_an_equality_with_null_never_matches_and_costs_nothing() -> None:
    together = many(["/a = NULL", "/a = ''", "/a IN (NULL, '')", "/a = NULL AND /b = 1"])
    assert together.matching(b'{"a":null,"b":1}') == []
    assert together.matching(b'{"a":"","b":1}') == []
    assert together.evaluations == 0


def test_filter_set_too_many_constants_are_not_filed() -> None:
    members = ", ".join(map(str, range(CONSTANTS_MAX + 1)))
    together = many([f"/a IN ({members})"])
    assert together.matching(b'{"a":1000}') == [0]
    assert together.evaluations == 1


def test_filter_set_a_field_of_removed_filters_is_not_looked_for() -> None:
    """Filters that were added and removed do not make later messages more expensive."""
    made = FilterSet(evaluation())
    made.add(compile_filter("/a = 1"), "stays")
    for number in range(200):
        filter_ = compile_filter(f"/gone{number} = 1")
        made.add(filter_, number)
        made.remove(filter_, number)
    # With early termination the rest of the message is not read once all fields are found.
    assert made.matching(b'{"a":1} and so on') == ["stays"]


def test_filter_set_a_broken_message_is_decided_filter_by_filter() -> None:
    """The result of a filter does not depend on the other filters (expressions.md §8, §12.3)."""
    together = many(["/a = 1", "/missing = 1", "1=1", "/b IS NULL"])
    assert sorted(together.matching(b'{"a":1,"x":'), key=str) == [0, 2]  # type: ignore[call-overload]
    assert together.matching(b'{"a":1,"x":2}') == [2, 3, 0]


def test_filter_set_a_message_that_takes_too_much_memory_does_not_match() -> None:
    small = EvaluationContext(JsonExtractor(), FieldValues(1000), MessageContext(b"i", b"g"))
    made = FilterSet(small)
    made.add(compile_filter("/a = 'x'"), "equality")
    made.add(compile_filter("UPPER(/a) = 'X'"), "function")
    made.add(compile_filter("/b = 1"), "other")
    message = b'{"a":"' + b"\\u0041" * 5000 + b'","b":1}'
    assert made.matching(message) == ["other"]
    assert small.exhausted == 2
    assert made.matching(b'{"a":"x","b":1}') == ["function", "equality", "other"]


def test_filter_set_a_message_of_too_many_values_is_read_filter_by_filter() -> None:
    small = EvaluationContext(JsonExtractor(), FieldValues(nodes_max=10), MessageContext(b"i", b"g"))
    made = FilterSet(small)
    for text in ("/a = 1", "/b = 1", "/c IS NULL"):
        made.add(compile_filter(text), text)
    message = b'{"b":1,"a":[' + b",".join([b"1"] * 11) + b"]}"
    assert made.matching(message) == ["/b = 1", "/c IS NULL"]
    assert (small.exhausted, small.unreadable) == (1, 1)


def test_filter_set_an_error_that_is_not_about_memory_is_raised() -> None:
    """The next message is matched as usual."""
    nowhere = evaluation(Extractor())
    made = FilterSet(nowhere)
    made.add(compile_filter("/a = 1"), "a")
    with pytest.raises(NotImplementedError):
        made.matching(b'{"a":1}')
    assert (nowhere.exhausted, nowhere.unreadable) == (0, 0)
    before = searches_given_up()
    assert many(["/a LIKE 'x+y'", "/b = 1"]).matching(b'{"a":"xxy","b":1}') == [1, 0]
    assert searches_given_up() == before


def test_filter_set_members_removed_after_a_match_are_forgotten() -> None:
    """The list of matches keeps no removed members."""
    made = FilterSet(evaluation())
    for number in range(50):
        made.add(POOL[0], number)
    assert made.matching(b'{"a":0}') == list(range(50))
    for number in range(50):
        made.remove(POOL[0], number)
    assert made.matching(b'{"a":0}') == []


def test_filter_set_a_search_that_is_given_up_does_not_match() -> None:
    """This holds under NOT as well, and other filters are not affected."""
    together = many(["/a NOT LIKE '(?R)'", "NOT (/a LIKE '(?R)' AND /b = 1)", "/a LIKE 'x'", "/b = 1"])
    before = searches_given_up()
    assert sorted(together.matching(b'{"a":"x","b":1}')) == [2, 3]
    assert searches_given_up() == before + 2


def test_filter_set_filters_share_the_time_of_a_message() -> None:
    """Each of these filters alone takes two seconds."""
    together = many([f"/a LIKE 'a*[bc]{number}'" for number in range(40)] + ["/b = 1"])
    assert together.matching(b'{"a":"' + b"a" * 400_000 + b'","b":1}') == [40]
    assert together.matching(b'{"a":"aac7","b":1}') == [40, 7]


def test_filter_set_slow_filters_leave_time_for_fast_ones() -> None:
    """This holds in any order of subscription: a simple filter on large messages does not depend on other patterns."""
    together = many([f"/a LIKE 'a*[bc]{number}'" for number in range(40)] + ["/b > 0 AND LENGTH(/a) > 5"])
    assert together.matching(b'{"a":"' + b"a" * 400_000 + b'","b":1}') == [40]


def test_filter_set_a_broken_message_is_read_once_for_filters_of_the_same_fields() -> None:
    """Reading this one for every filter would take minutes."""
    together = many([f"/k = {number}" for number in range(3000)] + ["/j < 2 AND /k = 7", "/k = 7 AND /j < 2"])
    body = b'"a":"' + b"x" * 20_000_000
    assert together.matching(b'{"k":7,' + body) == [7]
    assert together.matching(b'{"j":1,"k":7,' + body) == [7, 3000, 3001]
    assert together.matching(b"{" + body + b'",k:7}') == []


def test_filter_set_members_added_and_removed_between_broken_messages_are_heeded() -> None:
    together = many(["/k = 7", "/nothing IS NULL"])
    broken = b'{"k":7,"j":1,x'
    assert together.matching(broken) == [0]
    leaving = compile_filter("/j < 2")
    together.add(leaving, 2)
    assert sorted(together.matching(broken)) == [0, 2]
    together.remove(leaving, 2)
    assert together.matching(broken) == [0]


def test_filter_set_reading_has_no_more_time_than_evaluating() -> None:
    """At each level the value below is read twice: as the only element of an array and as itself."""
    together = many(
        [
            " OR ".join(
                "/a" + "".join(f"{'[0]' if at == level else ''}/a" for at in range(60)) + " = 1"
                for level in range(60)
            ),
            "/b = 1",
        ]
    )
    before = searches_given_up()
    message = b'{"b":1,"a":' + b'{"a":' * 60 + b'"' + b'\\"' * 10_000_000 + b'"' + b"}" * 61
    assert together.matching(message) == []
    assert searches_given_up() == before + 1


def test_filter_set_refuses_inconsistent_arguments() -> None:
    program = compile_filter("/a = 1").program
    with pytest.raises(ValueError, match="exactly one equality"):
        Filter(program, "x", (), True, False, False, True)
    made: Any = FilterSet(evaluation())
    with pytest.raises(KeyError):
        made.remove(compile_filter("/a = 1"), "nobody")


def test_filter_set_one_enormous_filter_has_no_more_time_than_others() -> None:
    """Comparing this many values with this many constants would take minutes."""
    enormous = " OR ".join(f"/a > {number}" for number in range(10**9, 10**9 + 20_000))
    together = many([enormous, "/b = 1"])
    before = searches_given_up()
    message = b'{"b":1,"a":[' + b",".join(b"%d" % number for number in range(100_000)) + b"]}"
    assert together.matching(message) == [1]
    assert searches_given_up() > before
