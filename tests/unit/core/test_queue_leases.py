"""The leases of a connection, compared with a dictionary."""

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.wire.ingress import LeaseTable

BOUND = 16  # the smallest bound of a table
Key = tuple[int, int, int]

keys = st.tuples(st.sampled_from([1, 2, 2**64 - 1]), st.integers(1, 40), st.sampled_from([0, 1, 500]))
steps = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "remove"]), keys), max_size=300)


class Model:
    """The model of the table, in the order of delivery."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.held: OrderedDict[Key, tuple[int, int]] = OrderedDict()

    def add(self, key: Key, value: tuple[int, int]) -> None:
        self.held.pop(key, None)
        while len(self.held) >= self.bound:
            self.held.popitem(last=False)
        self.held[key] = value


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 80))
def test_leases_behave_as_a_dictionary_that_drops_the_oldest(done: list[tuple[str, Key]], bound: int) -> None:
    table, model = LeaseTable(), Model(max(bound, BOUND))
    table.set_bound(bound)
    for number, (what, key) in enumerate(done):
        publisher, sequence, queue = key
        if what == "add":
            table.add(publisher, sequence, 1000 + number, number, queue)
            model.add(key, (1000 + number, number))
        else:
            assert table.remove(publisher, sequence, queue) == (model.held.pop(key, None) is not None)
        assert table.count == len(model.held)
    for publisher in (1, 2, 2**64 - 1):
        for sequence in range(1, 41):
            for queue in (0, 1, 500):
                expected = model.held.get((publisher, sequence, queue))
                assert table.get(publisher, sequence, queue) == expected


def test_leases_one_that_stays_does_not_make_the_table_grow() -> None:
    """One lease is never acknowledged; thousands of others are, ten at a time."""
    table = LeaseTable()
    table.set_bound(1 << 20)
    table.add(1, 1, 8, 0, 0)
    for sequence in range(2, 20_000):
        table.add(1, sequence, 8 * sequence, sequence, 0)
        if sequence > 11:
            assert table.remove(1, sequence - 10, 0)
    assert table.count == 11
    assert table.capacity <= 64
    assert table.get(1, 1, 0) == (8, 0)
    assert table.get(1, 19_999, 0) == (8 * 19_999, 19_999)
    assert table.get(1, 19_989, 0) is None


def test_leases_a_lower_bound_drops_the_oldest_with_the_next_delivery() -> None:
    table = LeaseTable()
    table.set_bound(100)
    for sequence in range(1, 101):
        table.add(1, sequence, sequence, 0, 0)
    table.set_bound(20)
    table.add(1, 101, 101, 0, 0)
    assert table.count == 20
    assert table.get(1, 81, 0) is None
    assert table.get(1, 82, 0) == (82, 0)


def test_leases_the_same_message_of_two_queues_is_held_twice() -> None:
    """queues.md §4: a record that enters several queues is acknowledged in each one separately."""
    table = LeaseTable()
    table.add(7, 1, 4096, 3, 0)
    table.add(7, 1, 4096, 9, 1)
    assert table.remove(7, 1, 0)
    assert table.get(7, 1, 0) is None
    assert table.get(7, 1, 1) == (4096, 9)
