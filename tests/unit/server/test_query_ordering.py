"""Sorting the records of a query: amps.server.transport.ordering."""

import random
from collections.abc import Sequence

import msgpack
import pytest

from amps.messages import make_message_types, standard_settings
from amps.server.transport import ordering
from amps.server.transport.failures import CommandFailure
from amps.server.transport.ordering import Ordering, ResultTooLarge, Row, parse_order

TYPES = make_message_types(standard_settings().values())


def rows_of(bodies: Sequence[bytes]) -> list[Row]:
    return [Row(0, txid, 0, b"", 0, body) for txid, body in enumerate(bodies, 1)]


def ordering_by(text: str, rows_max: int = 1 << 64) -> Ordering:
    return Ordering(parse_order(text), TYPES["json"].extractor(), rows_max)


def ordered(text: str, bodies: Sequence[bytes], rows_max: int = 1 << 64) -> list[bytes]:
    """The bodies in order, fetched a few at a time."""
    sorter = ordering_by(text, rows_max)
    for row in rows_of(bodies):
        sorter.add([row])
    sorter.finish()
    found: list[Row] = []
    while rows := sorter.take(7, 1 << 20):
        found += rows
    return [row.payload for row in found]


def values(*texts: str) -> list[bytes]:
    return [b'{"v":%s}' % text.encode() for text in texts]


MIXED = values(
    "null", '""', "{}", "-1.5", "false", "1", "true", "9", "10", "1e20", '"10"', '"9"', '"a"', '"ab"'
)


def test_values_of_all_kinds_have_an_order() -> None:
    """sow.md D8: NULL, then numbers (including booleans), then texts by their bytes; equal ones keep their order."""
    shuffled = list(MIXED)
    random.Random(1).shuffle(shuffled)
    nulls, equal = set(MIXED[:3]), set(MIXED[5:7])
    found = ordered("/v", shuffled)
    assert found[:3] == [body for body in shuffled if body in nulls]
    assert found[5:7] == [body for body in shuffled if body in equal]
    assert found[3:5] + found[7:] == MIXED[3:5] + MIXED[7:]
    found = ordered("/v DESC", shuffled)
    assert found[-3:] == [body for body in shuffled if body in nulls]
    assert found[:7] == MIXED[:6:-1]


def test_texts_have_the_order_of_their_bytes() -> None:
    """This includes texts with a zero byte, and texts that are prefixes of others."""
    bodies = values('"a"', '"a\\u0000"', '"a\\u0000a"', '"a\\u0001"', '"aa"', '"b"', '"\\u00e9"')
    assert ordered("/v", bodies[::-1]) == bodies
    assert ordered("/v DESC", bodies) == bodies[::-1]


def test_numbers_can_be_compared_as_texts() -> None:
    """protocol.md §9.4: the text in the message counts."""
    bodies = values("1.50", "10", '"1a"', "9")
    assert ordered("/v TEXT", bodies[::-1]) == bodies
    assert ordered("/v desc text", bodies) == bodies[::-1]
    assert ordered("/v TEXT, /v", bodies[::-1]) == bodies
    assert ordered("/v", bodies) == [bodies[0], bodies[3], bodies[1], bodies[2]]


def test_several_fields_decide_one_after_the_other() -> None:
    bodies = [b'{"a":%d,"b":{"c":"%s"}}' % (a, c.encode()) for a in (1, 2) for c in "zyx"]
    assert ordered("/a DESC, /b/c", bodies) == bodies[:2:-1] + bodies[2::-1]
    assert ordered("/b/c,/a", bodies) == [bodies[at] for at in (2, 5, 1, 4, 0, 3)]


def test_unreadable_fields_count_as_null() -> None:
    bodies = [b'{"v":2}', b"nothing", b'{"v":1}']
    assert ordered("/v", bodies) == [bodies[1], bodies[2], bodies[0]]


@pytest.mark.parametrize("rows_max", [0, 1, 50, ordering.PAGE_ROWS_MAX, ordering.PAGE_ROWS_MAX + 1, 1 << 64])
def test_many_records_are_sorted(rows_max: int) -> None:
    """There are several sorted runs, whether all records or a page is requested.

    Of equal records the older one is first.
    """
    chance = random.Random(rows_max)
    count = 3 * ordering.PAGE_ROWS_MAX
    bodies = [b'{"v":%d,"n":%d}' % (chance.randrange(500), number) for number in range(count)]
    expected = sorted(bodies, key=lambda body: int(body[5:].partition(b",")[0]))
    assert ordered("/v", bodies, rows_max) == expected[: min(rows_max, count)]


def test_a_page_larger_than_the_result_holds_all_records() -> None:
    """No record is left out before the page is full."""
    bodies = values(*map(str, range(3 * ordering.RUN_ROWS)))
    assert ordered("/v", bodies, ordering.PAGE_ROWS_MAX) == bodies
    assert ordered("/v DESC", bodies, ordering.PAGE_ROWS_MAX) == bodies[::-1]


def test_not_a_number_has_a_place() -> None:
    """Otherwise NaN would break the order."""
    numbers = [2.0, float("nan"), 1.0, float("nan"), -float("inf"), None, 3.0]
    bodies = [msgpack.packb({"v": number}) for number in numbers]
    sorter = Ordering(parse_order("/v"), TYPES["msgpack"].extractor(), 1 << 64)
    sorter.add(rows_of(bodies))
    sorter.finish()
    found = [bodies.index(row.payload) for row in sorter.take(10, 1 << 20)]
    assert found == [5, 1, 1, 4, 2, 0, 6]


def test_the_memory_for_sorting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting all records exceeds the limit; a page of them does not."""
    monkeypatch.setattr(ordering, "HELD_BYTES_MAX", 100 * ordering.ROW_BYTES)
    bodies = values(*map(str, range(500, 0, -1)))
    assert ordered("/v", bodies, 3) == bodies[:-4:-1]
    with pytest.raises(ResultTooLarge):
        ordered("/v", bodies)
    with pytest.raises(ResultTooLarge):
        ordered("/v", bodies, 200)
    monkeypatch.setattr(ordering, "HELD_BYTES_MAX", 3 * ordering.ROW_BYTES)
    with pytest.raises(ResultTooLarge):
        ordering_by("/v", 1).add(rows_of([b'{"v":"%s"}' % (b"x" * 2000)]))


@pytest.mark.parametrize(
    "text",
    ["/v UP", "v w", "/a ASC DESC", "1", "/a + 1", "/a,,", "TEXT /a", "/a TEXT ASC", "/a" + ",/a" * 32],
)
def test_malformed_orders_are_refused(text: str) -> None:
    with pytest.raises(CommandFailure) as failure:
        parse_order(text)
    assert failure.value.reason == "invalid orderby"


def test_large_records_are_sent_a_few_at_a_time() -> None:
    """A step sends about the given number of bytes, and at least one record."""
    sorter = ordering_by("/v")
    sorter.add(rows_of(values(*(f'"{letter * 1000}"' for letter in "abc"))))
    sorter.finish()
    assert [len(sorter.take(10, bytes_max)) for bytes_max in (1500, 1, 1)] == [2, 1, 0]


def test_an_order_may_be_missing() -> None:
    assert parse_order(" ") == ()
