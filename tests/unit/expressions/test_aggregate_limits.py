"""Limits on the memory and time of a group. A refused message leaves the group unchanged."""

import time

import pytest

from amps._core.expressions.aggregates import GroupTooLarge
from amps._core.values.fields import message as message_at_hand
from tests.support.aggregates import AGGREGATES, Grouped, json_values

# Two arrays without a common element: comparing each element with each takes long.
LONG_SEARCH = b'{"a":[%s],"b":[%s]}' % (b",".join([b"1"] * 30_000), b",".join([b"2"] * 30_000))

BAGS = ("ANY", "COUNT_DISTINCT", "GROUP_CONCAT", "MAX", "MIN", "UNIQUE")


def test_too_many_distinct_values() -> None:
    grouped = Grouped("COUNT_DISTINCT(/v)", "SUM(/n)", "/n", limit_bytes=10_000)
    messages = [b'{"v":"value %d","n":1}' % number for number in range(1000)]
    with pytest.raises(GroupTooLarge, match="the values of one group take more than 10000 bytes"):
        grouped.add(*messages)
    added = grouped.group.records
    assert grouped.values() == [added, added, 1]
    used_bytes = grouped.group.used_bytes
    assert 9_000 < used_bytes <= 10_000
    grouped.add(b'{"v":"value 0","n":1}')  # not a new value
    assert grouped.group.used_bytes == used_bytes
    grouped.remove(b'{"v":"value 0","n":1}', b'{"v":"value 0","n":1}', b'{"v":"value 1","n":1}')
    grouped.add(b'{"v":"value 7777","n":1}')


def test_a_refused_message_changes_nothing() -> None:
    grouped = Grouped(*(f"{function}(/v)" for function in AGGREGATES), "/n", "SUM(/n)", limit_bytes=4_000)
    grouped.add(b'{"v":1,"n":1}', b'{"v":2.5,"n":2}')
    before, used_bytes = grouped.values(), grouped.group.used_bytes
    for message in (b'{"v":"%s","n":3}' % (b"x" * 4_000), b'{"v":1,"n":"%s"}' % (b"x" * 4_000)):
        with pytest.raises(GroupTooLarge):
            grouped.add(message)
        assert grouped.values() == before
        assert (grouped.group.records, grouped.group.used_bytes) == (2, used_bytes)


def test_all_values_of_a_field_count() -> None:
    grouped = Grouped("SUM(/a) = /d", limit_bytes=3_000).add(b'{"d":["x","y"]}')
    with pytest.raises(GroupTooLarge):
        grouped.add(b'{"d":[%s]}' % b",".join([b'"x"'] * 200))
    with pytest.raises(GroupTooLarge):
        grouped.add(b'{"d":"%s"}' % (b"x" * 3_000))
    assert grouped.values() == [False]


def test_delimiters_count() -> None:
    """Otherwise many short values with a long delimiter could make a very long text."""
    grouped = Grouped(f"GROUP_CONCAT(/v, '{'-' * 1000}')", limit_bytes=5_000)
    grouped.add(*json_values("1", "2", "3", "4"))
    with pytest.raises(GroupTooLarge):
        grouped.add(*json_values("5"))
    grouped.remove(*json_values("1")).add(*json_values("5"))


def test_removed_messages_leave_nothing_behind() -> None:
    grouped = Grouped(*(f"{function}(/v)" for function in AGGREGATES))
    messages = json_values(*map(str, range(100)), '"x"', "2.5", "null")
    grouped.add(*messages).remove(*messages)
    assert (grouped.group.records, grouped.group.used_bytes) == (0, 0)


@pytest.mark.parametrize("function", AGGREGATES)
def test_removal_from_an_empty_group(function: str) -> None:
    grouped = Grouped(f"{function}(/v)")
    with pytest.raises(ValueError, match="a message that is not in the group"):
        grouped.remove(*json_values("1"))
    with pytest.raises(ValueError, match="a message that is not in the group"):
        grouped.remove(b"{}")
    assert grouped.group.records == 0


@pytest.mark.parametrize("function", BAGS)
def test_removal_of_a_value_that_is_not_in_the_group(function: str) -> None:
    grouped = Grouped(f"{function}(/v)", "COUNT(/v)").add(*json_values("1", "2", "null"))
    for other in ("3", "1.0", '"1"', '"a"'):
        with pytest.raises(ValueError, match="a message that is not in the group"):
            grouped.remove(*json_values(other))
    assert grouped.values()[1] == 2
    assert grouped.group.records == 3


def test_removal_of_another_kind_of_value() -> None:
    grouped = Grouped("SUM(/v)").add(*json_values("1"))
    for other in ('"x"', "1.0", "null"):
        with pytest.raises(ValueError, match="a message that is not in the group"):
            grouped.remove(*json_values(other))
    assert grouped.values() == [1]
    grouped = Grouped("COUNT(/v)").add(*json_values("null"))
    with pytest.raises(ValueError, match="a message that is not in the group"):
        grouped.remove(*json_values("1"))


def test_a_message_that_took_too_long_is_refused() -> None:
    """Otherwise the message could count when added, and not when removed."""
    grouped = Grouped("SUM(IF(/a = /b, 1, 0))", "/a").add(b'{"a":1,"b":1}')
    values = grouped.read(LONG_SEARCH)
    message_at_hand(1)
    try:
        time.sleep(0.3)
        with pytest.raises(TimeoutError):
            grouped.group.add(values)
    finally:
        message_at_hand(0)
    assert grouped.values() == [1, 1]


@pytest.mark.parametrize("field", ["/a = /b", "IF(COUNT(1) = 1, /a = /b, 0)"])
def test_fields_that_took_too_long(field: str) -> None:
    grouped = Grouped(field).add(b'{"a":1,"b":1}')
    values = grouped.read(LONG_SEARCH)
    message_at_hand(1)
    try:
        time.sleep(0.3)
        with pytest.raises(TimeoutError):
            grouped.group.add(values)
    finally:
        message_at_hand(0)
    assert grouped.values() == [True]


def test_outputs_that_took_too_long() -> None:
    """An output that was given up may succeed later, since the group is unchanged.

    Adding the message reaches no limit.
    """
    grouped = Grouped("COUNT(1) + 2 IN (/a, /b)", "IF(COUNT(1) = 1 AND COALESCE(/x, 'y') = 'y', 1, 0)")
    grouped.add(LONG_SEARCH)
    assert grouped.values() == [False, 1]


def test_many_values_take_little_time_each() -> None:
    """Fifty thousand values in ascending order, which would turn an unbalanced tree into a list."""
    grouped = Grouped("MIN(/v)", "MAX(/v)")
    messages = json_values(*(str(number) for number in range(50_000)))
    started = time.process_time()
    grouped.add(*messages)
    for message in messages[:0:-1]:
        grouped.remove(message)
    assert grouped.values() == [0, 0]
    assert time.process_time() - started < 30  # some minutes if every step visited all of them
