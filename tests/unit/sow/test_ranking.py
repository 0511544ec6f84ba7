"""Records in order (amps/_core/sow/ranking.pyx; sow.md §§10, 11, D8)."""

import json
import random
from bisect import bisect_left, insort
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.sow.ranking import RankedList, SortKeys
from amps._core.values.fields import Extractor
from amps.expressions.syntax import Path
from amps.messages import make_message_types, standard_settings
from amps.server.transport.ordering import OrderField, Ordering, Row, parse_order

KEYS = st.one_of(st.integers(0, 40), st.integers(0, (1 << 64) - 1))
ORDERS = st.one_of(
    st.binary(max_size=3),
    st.binary(max_size=40),
    st.sampled_from([b"", b"\0", b"same prefix 1", b"same prefix 2"]),
)


TYPES = make_message_types(standard_settings().values())


def extractor() -> Extractor:
    return TYPES["json"].extractor()


@given(st.lists(st.tuples(st.booleans(), KEYS, ORDERS), max_size=200))
def test_a_list_is_always_sorted(steps: list[tuple[bool, int, bytes]]) -> None:
    """Ranks, keys and access by rank are those of a sorted list, after each insertion, move and removal."""
    ranked = RankedList()
    expected: list[tuple[bytes, int]] = []
    known: dict[int, bytes] = {}
    for puts, key, order in steps:
        entry = (known.pop(key), key) if key in known else None
        rank = None
        if entry is not None:
            rank = bisect_left(expected, entry)
            del expected[rank]
        if puts:
            insort(expected, (order, key))
            known[key] = order
            assert ranked.put(key, order) == bisect_left(expected, (order, key))
        else:
            assert ranked.discard(key) == rank
        assert len(ranked) == len(expected)
        assert ranked.rank(key) == (bisect_left(expected, (order, key)) if puts else None)
        middle = len(expected) // 2
        assert ranked.keys(middle, 2) == [key for _, key in expected[middle : middle + 2]]
    assert ranked.keys(0, 1 << 40) == [key for _, key in expected]
    for rank, (_, key) in enumerate(expected):
        assert ranked.rank(key) == rank
        assert ranked.keys(rank, 1) == [key]
    assert ranked.keys(len(expected), 1) == []


@pytest.mark.parametrize("kind", ["random", "ascending", "descending", "equal"])
def test_a_large_list_is_sorted(kind: str) -> None:
    """Leaves and branches are split and joined, at both ends and in the middle."""
    chance = random.Random(kind)
    ranked = RankedList()
    keys = list(range(70_000))
    made = {"random": lambda _: chance.getrandbits(64), "ascending": int, "descending": lambda key: 99_999 - key}
    number = made.get(kind, lambda _: 7)
    orders = {key: number(key).to_bytes(9, "big") for key in keys}
    for key in keys:
        ranked.put(key, orders[key])
    chance.shuffle(keys)
    while True:
        expected = sorted(keys, key=lambda key: (orders[key], key))
        assert ranked.keys(0, len(keys) + 1) == expected
        for rank in (0, len(keys) // 3, len(keys) - 1):
            assert ranked.keys(rank, 1) == expected[rank : rank + 1]
        for rank in chance.sample(range(len(keys)), min(200, len(keys))):
            assert ranked.rank(expected[rank]) == rank
        if len(keys) < 10:
            break
        removed, keys = keys[: len(keys) * 2 // 3], keys[len(keys) * 2 // 3 :]
        if kind == "ascending":  # from the beginning on
            removed, keys = sorted(removed + keys)[: len(removed)], sorted(removed + keys)[len(removed) :]
        for key in removed:
            assert ranked.discard(key) is not None
    for key in keys:
        assert ranked.discard(key) is not None
    assert (len(ranked), ranked.keys(0, 1)) == (0, [])
    assert ranked.put(5, b"x") == 0


def test_memory_is_counted() -> None:
    """The memory of records grows with them, and is given back."""
    ranked = RankedList()
    empty = ranked.memory_bytes
    for key in range(10_000):
        ranked.put(key, b"x" * 100)
    assert 10_000 * 150 < ranked.memory_bytes - empty < 10_000 * 300
    for key in range(10_000):
        assert ranked.discard(key) is not None
    assert ranked.memory_bytes - empty < 300_000  # the table stays


VALUES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([0, -0.0, 0.0, 1 << 53, (1 << 53) + 1, float(1 << 53), (1 << 63) - 1, 1 << 63]),
    st.sampled_from([float(1 << 63), (1 << 64) - 1, float(1 << 64)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.sampled_from("ab\0\1é9"), max_size=4),
    st.sampled_from(["10", "9", "9.0", "x" * 2000, "x" * 2000 + "y"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.just("k"), st.just(1), max_size=1),
)


@given(
    st.lists(st.fixed_dictionaries({}, optional={"a": VALUES, "b": VALUES}), min_size=2, max_size=12),
    st.sampled_from(
        ["/a", "/a DESC", "/a TEXT", "/a DESC TEXT", "/b,/a DESC", "/b DESC TEXT,/a", "/b TEXT,/a DESC"]
    ),
)
def test_sort_keys_have_the_order_of_queries(messages: list[dict[str, Any]], text: str) -> None:
    """sow.md D8: a page has the order of the rows of a query."""
    fields = parse_order(text)
    payloads = [json.dumps(message).encode() for message in messages]
    ordering = Ordering(fields, extractor(), 1 << 40, numeric_texts=True)
    ordering.add([Row(0, number, 0, b"", 0, payload) for number, payload in enumerate(payloads)])
    ordering.finish()
    maker = sort_keys(fields)
    ranked = RankedList()
    for number, payload in enumerate(payloads):
        ranked.put(number, maker.key(payload))
    assert ranked.keys(0, 100) == [row.txid for row in ordering.take(100, 1 << 40)]


def sort_keys(fields: tuple[OrderField, ...]) -> SortKeys:
    return SortKeys(extractor(), [(field.path, field.descending, field.as_text) for field in fields])


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[no message", b'{"b":1}', b'{"a":null}', b'{"a":""}', b'{"a":{"b":1}}']
)
def test_a_message_without_a_value_is_first(payload: bytes) -> None:
    """sow.md D8: NULL is before all other values; a message that cannot be read has no values."""
    path: Path = parse_order("/a")[0].path
    maker = SortKeys(extractor(), [(path, False, False)])
    assert maker.key(payload) == b"\0"
    assert maker.key(b'{"a":-1e300}') > b"\0"
    assert SortKeys(extractor(), [(path, True, False)]).key(payload) == b"\xff"
    assert SortKeys(extractor(), []).key(payload) == b""
