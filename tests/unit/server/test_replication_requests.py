"""Requests to the replication process: which destinations are downgraded and upgraded (replication.md §8)."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgpack
import pytest

from amps._core.shm.memory import MODE_ASYNC, MODE_DOWNGRADED, MODE_SYNC
from amps.server.services.replication_requests import ReplicationRequests as Asking
from amps.server.services.requests import RequestRefused
from amps.server.shared.replication_requests import (
    LinkState,
    ReplicationRequests,
    to_downgrade,
    to_upgrade,
)


def sync(age_s: float = 0.0, connected: bool = True) -> LinkState:
    return LinkState(MODE_SYNC, connected, age_s)


def downgraded(age_s: float = 0.0, connected: bool = True) -> LinkState:
    return LinkState(MODE_DOWNGRADED, connected, age_s)


ASYNC = LinkState(MODE_ASYNC, True, 100.0)


class FakeLinks:
    """Destinations whose changes are noted."""

    def __init__(self, *states: LinkState) -> None:
        self.known = list(states)
        self.done: list[tuple[object, ...]] = []

    def states(self) -> list[LinkState]:
        return self.known

    def downgrade(self, destination: int, unacknowledged_s: float | None) -> None:
        self.done.append(("downgrade", destination, unacknowledged_s))

    def upgrade(self, destination: int) -> None:
        self.done.append(("upgrade", destination))

    def reconnect(self, destination: int) -> bool:
        self.done.append(("reconnect", destination))
        return self.known[destination].is_connected


@contextmanager
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def asked(links: FakeLinks, *requests: tuple[object, ...], min_sync: int | None = None) -> list[list[object]]:
    """The answers to requests, each without its number."""
    with channel() as (ours, theirs):
        for number, request in enumerate(requests):
            theirs.send(msgpack.packb([number, *request]))
        ReplicationRequests(ours, min_sync).answer_requests(links)
        answers = [msgpack.unpackb(theirs.recv(1 << 16)) for _ in requests]
    assert [answer[0] for answer in answers] == list(range(len(requests)))
    return [answer[1:] for answer in answers]


# --- the rules ----------------------------------------------------------------------------------------------


def test_a_downgrade_needs_an_older_unacknowledged_message() -> None:
    """replication.md §8: strictly older than `Age`, and only destinations in sync mode."""
    states = [sync(5.0), sync(5.1), ASYNC, downgraded(9.0), sync(7.0, connected=False)]
    assert to_downgrade(states, 5.0, None) == [1, 4]


def test_replication_11_nothing_outstanding_is_age_zero() -> None:
    """replication.md §26 11, 25.17: a destination is not downgraded for merely being disconnected."""
    assert to_downgrade([sync(0.0, connected=False)], 0.0, None) == []


@pytest.mark.parametrize(
    ("min_sync", "expected"), [(None, [0, 1, 3]), (1, [0, 1]), (2, [0]), (3, []), (4, [])]
)
def test_replication_14_a_minimum_of_destinations_stays_sync(
    min_sync: int | None, expected: list[int]
) -> None:
    """replication.md §26 14, 25.5: counted by mode, not by connection; candidates in the order of the configuration."""
    states = [sync(9.0, connected=False), sync(9.0), ASYNC, sync(9.0)]
    assert to_downgrade(states, 1.0, min_sync) == expected


def test_the_minimum_counts_destinations_that_are_well() -> None:
    """replication.md §8"""
    assert to_downgrade([sync(0.0), sync(9.0)], 1.0, 1) == [1]
    assert to_downgrade([downgraded(), sync(9.0)], 1.0, 1) == []


def test_replication_13_an_upgrade_is_for_downgraded_connected_destinations() -> None:
    """replication.md §26 13, 25.19: strictly younger than `Age`, connected, and not configured async."""
    states = [
        downgraded(0.0),
        downgraded(2.0),
        downgraded(1.9),
        downgraded(0.0, connected=False),
        ASYNC,
        sync(),
    ]
    assert to_upgrade(states, 2.0) == [0, 2]


# --- requests -----------------------------------------------------------------------------------------------


def test_replication_10_requests_of_actions() -> None:
    """replication.md §26 10, 12: the answer has the numbers of the changed destinations."""
    links = FakeLinks(sync(9.5), sync(0.0), downgraded(0.5))
    answers = asked(links, ("downgrade older", 3.0), ("upgrade younger", 1.0))
    assert answers == [["ok", [0]], ["ok", [2]]]
    assert links.done == [("downgrade", 0, 9.5), ("upgrade", 2)]


def test_replication_14_the_process_knows_the_minimum() -> None:
    """replication.md §26 14: the action does not downgrade, the operator does."""
    links = FakeLinks(sync(9.5))
    assert asked(links, ("downgrade older", 3.0), ("downgrade", 0), min_sync=1) == [["ok", []], ["ok", [0]]]
    assert links.done == [("downgrade", 0, None)]


def test_replication_16_requests_of_operators() -> None:
    """replication.md §26 16, 25.20: what is done already is a success that changes nothing."""
    links = FakeLinks(sync(), downgraded(connected=False), ASYNC)
    assert asked(links, ("downgrade", 1), ("downgrade", 2), ("upgrade", 0)) == [["ok", []]] * 3
    assert links.done == []
    assert asked(links, ("downgrade", 0), ("upgrade", 1), ("reconnect", 0), ("reconnect", 1)) == [
        ["ok", [0]],
        ["ok", [1]],
        ["ok", [0]],
        ["ok", []],
    ]
    assert links.done == [("downgrade", 0, None), ("upgrade", 1), ("reconnect", 0), ("reconnect", 1)]


def test_replication_13_an_operator_cannot_upgrade_what_is_configured_async() -> None:
    """replication.md §26 13, 25.20"""
    links = FakeLinks(ASYNC)
    ((kind, text),) = asked(links, ("upgrade", 0))
    assert kind == "error"
    assert text == (
        "the destination is configured async, so it cannot become sync; change its SyncType and restart"
    )
    assert links.done == []


def test_an_unknown_request_is_refused() -> None:
    ((kind, text),) = asked(FakeLinks(sync()), ("destroy", 0))
    assert (kind, text) == ("error", "the replication process knows no request 'destroy'")


def test_an_asker_that_has_ended_does_not_stop_the_process() -> None:
    """The channel outlives both processes: answers that nobody reads fill it, and later ones are dropped."""
    links = FakeLinks(sync())
    with channel() as (ours, theirs):
        requests = ReplicationRequests(ours, None)
        for number in range(2000):
            theirs.send(msgpack.packb([number, "reconnect", 0]))
            requests.answer_requests(links)
        assert len(links.done) == 2000
        assert requests.fileno() == ours.fileno()


def test_both_sides_together() -> None:
    """The services process asks, and an error is a refusal with its text."""

    async def body() -> None:
        with channel() as (ours, theirs):
            loop = asyncio.get_running_loop()
            links = FakeLinks(sync(9.0), ASYNC, downgraded())
            answering = ReplicationRequests(ours, None)
            loop.add_reader(answering.fileno(), answering.answer_requests, links)
            asking = Asking(theirs)
            asking.begin(loop)
            assert await asking.downgrade_older(1.0) == [0]
            assert await asking.upgrade_younger(1.0) == [2]
            assert await asking.change("downgrade", 0) is True
            assert await asking.change("downgrade", 1) is False
            with pytest.raises(RequestRefused, match="configured async"):
                await asking.change("upgrade", 1)
            for end in (ours, theirs):
                loop.remove_reader(end.fileno())

    asyncio.run(body())
