"""What a destination leaves to its connection, and which pages of the journal its flow needs."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from amps.server.replication.destinations import (
    LEFT_BYTES_MAX,
    LEFT_MIXED_BYTES_MAX,
    MIXED_BYTES,
    SENDING_S,
    Destination,
)
from amps.server.replication.log_access import LogAccess
from amps.server.replication.replication import Replication

SCANNED = 4 * MIXED_BYTES


class Scanned:
    """A destination whose source has scanned up to SCANNED."""

    def __init__(self) -> None:
        self.source = SimpleNamespace(
            scans_by_sending=True, scanned_position=SCANNED, passed_over_position=0, sent_position=7, acked_position=5
        )
        self.destination: Any = SimpleNamespace(source=self.source, connection=object(), _left_at=0, _left_s=0.0)

    def leaves(self, left_bytes: int, now_s: float = 100.0) -> bool:
        durable = self.source.scanned_position + left_bytes
        return Destination.leaves_scan(self.destination, durable, now_s)


def test_the_connection_scans_as_it_sends() -> None:
    one = Scanned()
    assert one.leaves(1)
    assert not one.leaves(0), "there is nothing to scan"
    one.source.scans_by_sending = False  # no connection, or it is behind the scan
    assert not one.leaves(1)


def test_a_connection_that_sends_nothing_for_a_moment_is_not_waited_for() -> None:
    """docs/replication.md: publishers of messages that do not go there must not wait for a blocked connection."""
    one = Scanned()
    assert one.leaves(10, 100.0)
    assert one.leaves(10, 100.0 + SENDING_S / 2)
    assert not one.leaves(10, 100.001 + SENDING_S)
    one.source.scanned_position += 5
    assert one.leaves(5, 100.001 + SENDING_S)
    assert not one.leaves(5, 100.002 + 2 * SENDING_S)


@pytest.mark.parametrize(
    ("passed_over", "left_bytes_max"),
    [
        (SCANNED - MIXED_BYTES, LEFT_BYTES_MAX),
        (SCANNED - MIXED_BYTES + 1, LEFT_MIXED_BYTES_MAX),
        (SCANNED - 1, LEFT_MIXED_BYTES_MAX),
    ],
)
def test_less_is_left_where_some_messages_do_not_go_there(passed_over: int, left_bytes_max: int) -> None:
    one = Scanned()
    one.source.passed_over_position = passed_over
    assert one.leaves(left_bytes_max)
    assert not one.leaves(left_bytes_max + 1)


def test_pages_of_the_journal_are_needed_by_the_scan_and_by_a_connection() -> None:
    """What a destination lacks that is away must not stay in memory: it may be all of the log."""
    one = Scanned()
    assert sorted(Destination.reading(one.destination)) == [5, 7, SCANNED]
    one.destination.connection = None
    assert list(Destination.reading(one.destination)) == [SCANNED]


def test_each_turn_tells_which_pages_are_needed() -> None:
    """Otherwise the core would release no page of an instance that replicates, and its log would fill the memory."""
    told: list[list[int]] = []
    destination = SimpleNamespace(
        step=lambda durable, now_s, log: False,
        leaves_scan=lambda durable, now_s: False,
        reading=lambda: iter([30, 20]),
        connection=None,
    )
    incoming = SimpleNamespace(step=lambda *watermarks: False, wants_durable=True, scanned_position=10)
    link = SimpleNamespace(consumed=lambda: 0, written=lambda: 0, durable=lambda: 0)
    replication: Any = SimpleNamespace(
        core=SimpleNamespace(link=link),
        destinations=[destination],
        links=[],
        access=SimpleNamespace(release_pages=lambda positions: told.append(list(positions))),
        log=None,
        _incoming=[incoming],
        _left=None,
    )
    replication._reading = lambda: Replication._reading(replication)

    async def turn() -> None:
        Replication._moved(replication)

    asyncio.run(turn())
    assert told == [[30, 20, 10]]


def test_pages_are_told_unless_they_are_kept() -> None:
    """`O_DIRECT` disabled: the system decides how long pages stay in memory."""
    looked: list[list[int]] = []
    pages = SimpleNamespace(look=lambda positions: looked.append(list(positions)))
    for kept in (None, pages):
        access: Any = SimpleNamespace(_pages=kept)
        LogAccess.release_pages(access, [4])
    assert looked == [[4]]
