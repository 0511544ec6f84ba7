"""Which destinations of replication messages wait for, against a model that keeps every record (replication.md §7, §8).

The model (tests/support/destinations.py) has publishers, records in log order, and destinations that scan the log,
acknowledge records (with exceptions, as a ring of instances does), are downgraded and upgraded. The code under test
sees shared memory only.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.shm.memory import MODE_ASYNC, MODE_DOWNGRADED, MODE_SYNC, ControlPage, PendingTable
from amps._core.wire.persisted import AckCheckpoints, Destinations, DestinationWaits
from amps._core.wire.topics import TopicTable
from tests.support.destinations import PUBLISHERS, RECORD_BYTES, World

NAMES = ("publish", "publish", "publish", "scan", "scan", "acknowledge", "acknowledge", "except", "restart", "mode")
events = st.lists(
    st.tuples(
        st.sampled_from((*NAMES, "wait", "wait", "look", "give up")),
        st.integers(0, 1),
        st.integers(0, 4),
        st.sampled_from(PUBLISHERS),
    ),
    max_size=100,
)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 2), st.sampled_from([8, 64]), events)
def test_nobody_waits_longer_or_shorter_than_for_records_that_destinations_lack(
    count: int, capacity: int, script: list[tuple[str, int, int, int]]
) -> None:
    """replication.md §7, §8, §26 behaviours 2 to 6 and 16: a wait ends only when no sync destination lacks a message,
    and then it ends at the next look.
    """
    world = World(count, capacity)
    waits = DestinationWaits(world.destinations)
    waiting: dict[int, tuple[int, int]] = {}

    def look() -> None:
        for token in waits.passed():
            publisher, before = waiting.pop(token)
            assert not world.lacks(publisher, before), "it waited too short"
        for publisher, before in waiting.values():
            assert not world.destinations.are_persisted(publisher, before), "it was not looked at"
        assert waits.count == len(waiting)

    for name, index, number, publisher in script:
        if name == "wait":
            token = waits.add(publisher, world.end)
            if token is None:
                assert not world.lacks(publisher, world.end)
            else:
                assert token not in waiting
                waiting[token] = publisher, world.end
        elif name == "look":
            look()
        elif name == "give up" and waiting:
            token = sorted(waiting)[number % len(waiting)]
            waits.remove(token)
            del waiting[token]
        else:
            world.event(name, index, number, publisher)
    world.settle()
    look()
    assert not waiting


@settings(max_examples=200, deadline=None)
@given(events)
def test_the_persisted_sequence_is_a_safe_one(script: list[tuple[str, int, int, int]]) -> None:
    """replication.md 25.36: the `seq` of a logon never covers a message that a sync destination lacks."""
    world = World(2)
    for name, index, number, publisher in script:
        world.event(name, index, number, publisher)
        for one in PUBLISHERS:
            own = [record for record in world.records if record.publisher == one]
            persisted = world.destinations.persisted_sequence(one, len(own), world.end)
            assert 0 <= persisted <= len(own)
            last = [record for record in own if record.sequence <= persisted]
            assert not last or not world.lacks(one, last[-1].position + 1)
    world.settle()
    for one in PUBLISHERS:
        own = [record for record in world.records if record.publisher == one]
        assert world.destinations.persisted_sequence(one, len(own), world.end) == len(own)


def test_the_persisted_sequence_is_that_before_the_first_message_that_a_destination_lacks() -> None:
    """replication.md 25.36."""
    world = World(1)
    for _ in range(50):
        world.publish(101, {0})
    world.settle()
    for _ in range(10):
        world.publish(101, {0})
    assert world.destinations.persisted_sequence(101, 60, world.end) == 0, "it is not known yet"
    world.scan(0, 100)
    assert world.destinations.persisted_sequence(101, 60, world.end) == 50
    world.change_mode(0)
    assert world.destinations.persisted_sequence(101, 60, world.end) == 60


def test_a_publisher_does_not_wait_for_the_records_of_others() -> None:
    """replication.md §26 behaviour 5: the destination is stopped, and lacks the messages of another publisher."""
    world = World(1)
    world.publish(101, {0})
    world.publish(102, set())
    assert not world.destinations.are_persisted(102, world.end), "the log is not scanned up to there"
    world.scan(0, 2)
    assert world.destinations.are_persisted(102, world.end)
    assert not world.destinations.are_persisted(101, world.end)


def test_without_room_in_the_table_all_wait_for_the_watermark() -> None:
    world = World(1, capacity=8)
    for publisher in range(1, 9):
        world.publish(publisher, {0})
    world.publish(99, set())
    world.scan(0, 20)
    assert world.tables[0].full
    waits = DestinationWaits(world.destinations)
    token = waits.add(99, world.end)
    assert token is not None
    world.acknowledge(0, 7)
    assert waits.passed() == []
    world.acknowledge(0, 1)
    assert waits.passed() == [token]


def test_an_upgraded_destination_is_waited_for_by_later_messages_only() -> None:
    """replication.md §8, §24.7."""
    world = World(1)
    world.publish(101, {0})
    world.change_mode(0)
    assert world.destinations.are_persisted(101, world.end)
    world.change_mode(0)
    world.scan(0, 1)
    assert world.destinations.are_persisted(101, world.end)
    world.publish(101, {0})
    world.scan(0, 1)
    assert not world.destinations.are_persisted(101, world.end)


def test_a_downgrade_ends_all_waits_at_once() -> None:
    """replication.md §26 behaviours 10 and 16; a second sync destination is still waited for."""
    world = World(2)
    world.publish(101, {0})
    world.publish(102, {0, 1})
    for index in (0, 1):
        world.scan(index, 2)
    waits = DestinationWaits(world.destinations)
    first, second = waits.add(101, RECORD_BYTES), waits.add(102, world.end)
    world.change_mode(0)
    assert waits.passed() == [first]
    world.change_mode(1)
    assert waits.passed() == [second]


def test_a_wait_counts_only_the_destinations_that_may_carry_the_topic() -> None:
    """replication.md §26 behaviour 8: a topic that no destination lists is not held back by another one."""
    world = World(2)
    world.publish(101, {1})
    for index in (0, 1):
        world.scan(index, 1)
    waits = DestinationWaits(world.destinations)
    assert waits.add(101, world.end, 0, 0b01) is None
    assert waits.add(101, world.end, 0, 0) is None
    assert waits.add(101, world.end, 0, 0b10) is not None


def test_a_second_publisher_is_waited_for() -> None:
    """Messages without a sequence have a publisher of their own: a flush waits for both."""
    world = World(1)
    world.publish(102, {0})
    world.scan(0, 1)
    waits = DestinationWaits(world.destinations)
    assert waits.add(101, world.end) is None
    token = waits.add(101, world.end, 102)
    world.acknowledge(0, 1)
    assert waits.passed() == [token]


def test_who_waits_only_until_it_is_known_what_a_destination_gets() -> None:
    world = World(1)
    world.publish(101, {0})
    waits = DestinationWaits(world.destinations)
    token = waits.add(101, world.end, known_only=True)
    assert token is not None
    world.scan(0, 1)
    assert waits.passed() == [token]
    assert waits.add(101, world.end, known_only=True) is None


def test_transports_are_told_what_they_may_wait_for() -> None:
    """docs/replication.md, watermarks: nobody waits for a destination that is not sync. A mode changes what is waited
    for, in both directions.
    """
    control = ControlPage()
    control.destinations = 1
    told = []
    for mode, position in (
        (MODE_ASYNC, 8), (MODE_ASYNC, 16), (MODE_SYNC, 16), (MODE_SYNC, 16), (MODE_SYNC, 24), (MODE_DOWNGRADED, 24),
        (MODE_DOWNGRADED, 32),
    ):  # fmt: skip
        before = control.replication_version
        says = control.set_destination(0, mode, position, 0, position)
        assert says == (control.replication_version != before)
        told.append(says)
        assert control.destination(0)[1] == position
    assert told[1:] == [False, True, False, True, True, False]


def test_ten_thousand_who_wait_for_a_stopped_destination_cost_nothing_while_another_goes_on() -> None:
    """The work follows the changes: a stopped destination scans, and another one acknowledges, 1000 times."""
    world = World(2, capacity=1 << 15)
    waits = DestinationWaits(world.destinations)
    for publisher in range(1, 10_001):
        world.tables[0].note_record(publisher, publisher * RECORD_BYTES, 1, 0)
    end = 10_002 * RECORD_BYTES
    for index in (0, 1):
        world.control.set_destination(index, MODE_SYNC, 0, 0, end)
    world.control.set_destination(1, MODE_SYNC, end, 0, end)
    tokens = [waits.add(publisher, end) for publisher in range(1, 10_001)]
    assert None not in tokens
    waits.passed()
    before = waits.looks
    for step in range(1000):
        position = end + (step + 1) * RECORD_BYTES
        world.control.set_destination(0, MODE_SYNC, RECORD_BYTES, 0, position)
        world.control.set_destination(1, MODE_SYNC, position, 0, position)
        stuck_one = waits.add(20_000, position)
        assert stuck_one is None
        assert waits.passed() == []
    assert waits.looks == before
    # The destination comes back, and acknowledges in order: each acknowledgement frees those that it concerns.
    for publisher in range(1, 101):
        world.control.set_destination(0, MODE_SYNC, publisher * RECORD_BYTES + 1, 0, end * 2)
        assert waits.passed() == [tokens[publisher - 1]]
    assert waits.looks == before + 100


def test_a_token_that_does_not_wait_cannot_be_removed() -> None:
    world = World(1)
    waits = DestinationWaits(world.destinations)
    with pytest.raises(KeyError):
        waits.remove(0)
    world.publish(101, {0})
    token = waits.add(101, world.end)
    assert token is not None
    waits.remove(token)
    with pytest.raises(KeyError):
        waits.remove(token)


def test_a_destination_needs_a_pending_table() -> None:
    with pytest.raises(TypeError, match="pending table"):
        Destinations(ControlPage(), [object()])  # type: ignore[list-item]


def test_the_carriers_of_a_topic_are_asked_for_once() -> None:
    asked: list[tuple[str, str]] = []

    def carriers(topic: str, message_type: str) -> int:
        asked.append((topic, message_type))
        return 0b10 if topic == "t" else 0

    destinations = Destinations(ControlPage(), [PendingTable(8), PendingTable(8)], carriers)
    table = TopicTable(lambda topic, message_type: (True, False, None, None))
    for _ in range(2):
        assert destinations.may_carry(table.entry("t", "json")) == 0b10
        assert destinations.may_carry(table.entry("u", "json")) == 0
    assert asked == [("t", "json"), ("u", "json")]


def test_checkpoints_are_thinned_and_never_say_too_much() -> None:
    """More than fit: the last is kept, and each covers what the dropped ones before it covered."""
    world = World(1)
    checkpoints = AckCheckpoints()
    for number in range(1, 101):
        world.publish(101, {0})
        checkpoints.note(number * 10, number, number)
        assert checkpoints.resolve(number * 10, world.end)
    assert len(checkpoints) <= 16
    world.scan(0, 100)
    told = []
    for _ in range(100):
        world.acknowledge(0, 1)
        found, awaited = checkpoints.take_persisted(world.destinations, 101, world.end, 1000)
        if found is not None:
            sequence, requests = found
            assert sequence == requests
            assert not world.lacks(101, sequence * RECORD_BYTES)
            told.append(sequence)
        assert awaited == 0 or not world.destinations.are_persisted(101, awaited)
    assert told == sorted(told)
    assert told[-1] == 100
    assert len(told) == 16
    steps = [after - before for before, after in itertools.pairwise([0, *told])]
    assert max(steps) <= 100 // 8, "an acknowledgement lags by more than an eighth"
