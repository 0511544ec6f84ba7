"""Lists of bookmarks as clients write them, and the records made of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.wire.ingress import (
    ACTION_ACKNOWLEDGE,
    ACTION_CANCEL,
    ACTION_EXPIRE,
    ACTION_EXTEND_LEASE,
    ENTRIES_PER_RECORD_MAX,
    AckList,
    LeaseTable,
    make_records,
)
from amps.server.transport.bookmarks import parse_bookmark
from amps.server.transport.failures import CommandFailure
from tests.support.queue_worker import Acknowledged, Entry

U64 = 2**64 - 1


def parsed(text: str, leases: LeaseTable | None = None, queue: int = 0) -> list[tuple[int, int]] | None:
    """The (publisher, sequence) of each bookmark, or None if the text is no list of bookmarks."""
    acks = AckList()
    if not acks.parse_text(text.encode(), leases, queue):
        return None
    return [(entry.publisher_id, entry.sequence) for entry in records_of(acks)[0].entries]


def records_of(acks: AckList, **about: int) -> list[Acknowledged]:
    values: dict[str, int] = {
        "slot": 3,
        "serial": 4,
        "topic": 5,
        "action": ACTION_ACKNOWLEDGE,
        "extension_ns": 0,
        "searched_until": 0,
        "token": 0,
        "publisher_id": 77,
        "derived_id": 88,
        "sequence": 9,
        **about,
    }
    return [Acknowledged.read(record) for record in make_records(acks, numbered=True, **values)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1|2|", [(1, 2)]),
        ("1|2", [(1, 2)]),
        ("1|2|,3|4|", [(1, 2), (3, 4)]),
        (" 1 | 2 | , 3|4 ", [(1, 2), (3, 4)]),
        ("1|2|20240611T091530.250000Z|,3|4|x", [(1, 2), (3, 4)]),
        (f"{U64}|{U64}|", [(U64, U64)]),
        ("00000000000000000001|0002|", [(1, 2)]),
        ("1|2|,1|2|", [(1, 2), (1, 2)]),
        ("1|0|", [(1, 0)]),
    ],
)
def test_acks_bookmarks_are_read(text: str, expected: list[tuple[int, int]]) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "1|2|,",
        ",1|2|",
        "1",
        "1|",
        "|2|",
        "1|2|x|y",
        "1|2|||",
        "0|1|",
        "0",
        "20240611T091530",
        "x|1|",
        "1|x|",
        "-1|2|",
        "1 2|3|",
        f"{U64 + 1}|1|",
        f"1|{U64 + 1}|",
        "1|99999999999999999999|",
        "000000000000000000001|1|",
        "1|2|;3|4|",
        "[1|2|:3|4|]",
    ],
)
def test_acks_malformed_lists_are_refused(text: str) -> None:
    assert parsed(text) is None


pieces = st.sampled_from(["1", "22", "|", "|", ",", " ", "\t", "x", "0", str(U64), str(U64 + 1)])


@settings(max_examples=500, deadline=None)
@given(st.lists(pieces, max_size=12).map("".join))
def test_acks_a_list_is_read_as_that_of_a_subscription(text: str) -> None:
    """Both parsers accept the same lists of bookmarks."""
    expected = None
    try:
        found = parse_bookmark(text)
    except CommandFailure:
        pass
    else:
        points = found.begin
        if not (points.epoch or points.now or points.times_us or found.end):
            expected = [(point.publisher_id, point.sequence) for point in points.messages]
            if any(not publisher for publisher, _ in expected):
                expected = None
    assert parsed(text) == expected


def test_acks_a_delivered_message_carries_position_and_slot() -> None:
    leases = LeaseTable()
    leases.add(1, 2, 4096, 17, 6)
    leases.add(1, 3, 8192, 18, 5)  # of another queue
    acks = AckList()
    assert acks.parse_text(b"1|2|,1|3|,1|4|", leases, 6)
    assert acks.unknown_bookmarks() == [(1, 1, 3), (2, 1, 4)]
    acks.set_position(2, 555)
    assert acks.unknown == 1
    (record,) = records_of(acks, searched_until=4321)
    assert record.entries == (Entry(1, 2, 4096, 17), Entry(1, 3, 0, 0), Entry(1, 4, 555, 0))
    assert record.searched_until == 4321
    acks.end_leases_of(leases, 6)
    assert leases.get(1, 2, 6) is None
    assert leases.get(1, 3, 5) == (8192, 18)
    with pytest.raises(IndexError):
        acks.set_position(3, 1)


def test_acks_a_record_names_client_and_action() -> None:
    acks = AckList()
    assert acks.parse_text(b"1|2|", None, 0)
    (record,) = records_of(acks, action=ACTION_EXTEND_LEASE, extension_ns=5, token=6, sequence=7)
    assert (record.slot, record.serial, record.topic) == (3, 4, 5)
    assert (record.publisher_id, record.sequence, record.flags) == (77, 7, 0)
    assert (record.action, record.extension_ns, record.token) == (ACTION_EXTEND_LEASE, 5, 6)
    # Without a sequence it is numbered, under the derived id.
    (record,) = records_of(acks, sequence=0)
    assert (record.publisher_id, record.sequence, record.flags) == (88, 0, 1)
    assert (ACTION_ACKNOWLEDGE, ACTION_CANCEL, ACTION_EXPIRE, ACTION_EXTEND_LEASE) == (0, 1, 2, 3)


def test_acks_a_long_list_becomes_several_records_of_which_the_last_has_the_number() -> None:
    count = 2 * ENTRIES_PER_RECORD_MAX + 1
    acks = AckList()
    assert acks.parse_text(",".join(f"1|{number}|" for number in range(1, count + 1)).encode(), None, 0)
    assert acks.count == acks.unknown == count
    records = records_of(acks, token=3)
    assert [len(record.entries) for record in records] == [ENTRIES_PER_RECORD_MAX, ENTRIES_PER_RECORD_MAX, 1]
    assert [record.sequence for record in records] == [0, 0, 9]
    assert [record.publisher_id for record in records] == [88, 88, 77]
    assert {record.token for record in records} == {3}
    named = [entry.sequence for record in records for entry in record.entries]
    assert named == list(range(1, count + 1))
