"""The engine's transactions: sequences, answers, lost connections (queue_guarantees.md §4)."""

from typing import Any

import pytest

from amps.client import (
    DisconnectedException,
    MemoryPublishStore,
    TransactionRefusedException,
    UsageException,
)
from amps.client.protocol.command import TransactionCommand
from amps.client.protocol.engine_types import FailedWrite, Phase, Ticket, TicketDone, TicketFailed
from tests.unit.client.harness import Harness

LOST = DisconnectedException("gone")


class Transacting(Harness):
    """An engine that sends transactions."""

    def transact(self, publishes: int = 1) -> Ticket:
        command = TransactionCommand("Q", "1|2|", b"body", publishes)
        return self.engine.execute(command, None, self.now)

    def sequences(self) -> list[Any]:
        return [frame.header["s"] for frame in self.sent() if frame.header["c"] == "transaction"]

    def answer(self, ticket: Ticket, reason: str | None = None) -> None:
        header = {"c": "ack", "cid": ticket.command_id, "a": "persisted", "s": 1}
        self.receive(
            {**header, "status": "success"}
            if reason is None
            else {**header, "status": "failure", "reason": reason}
        )

    def recover(self, seq: int) -> None:
        self.engine.connection_lost(self.now, LOST)
        self.logon(seq)
        self.engine.recover(self.now)
        assert self.engine.phase is Phase.READY


def ready(seq: int = 0, *, recovers: bool = False) -> Transacting:
    harness = Transacting()
    harness.engine.recovers = recovers
    harness.logon(seq)
    harness.engine.recover(harness.now)
    harness.sent()
    harness.engine.events()
    return harness


def test_a_transaction_takes_the_sequences_behind_those_of_the_server() -> None:
    """queue_guarantees.md §4, 2: one for the acknowledgement, one for each publish."""
    harness = ready(40)
    for publishes in (1, 0, 5, 2):
        harness.transact(publishes)
    sent = harness.sent()
    assert [frame.header["s"] for frame in sent] == [41, 43, 44, 50]
    assert sent[0].header == {
        "c": "transaction",
        "cid": sent[0].header["cid"],
        "t": "Q",
        "bm": "1|2|",
        "s": 41,
        "a": "persisted",
    }
    assert sent[0].body == b"body"


def test_only_its_own_answer_settles_it() -> None:
    """queue_guarantees.md §4, 11: conflated acknowledgements of publishes do not."""
    harness = ready()
    first, second = harness.transact(), harness.transact()
    harness.receive({"c": "ack", "a": "persisted", "status": "success", "s": 100})
    assert not first.done
    harness.answer(second, "lease lost")
    harness.answer(first)
    assert (first.error, type(second.error)) == (None, TransactionRefusedException)
    kinds = [type(event) for event in harness.events(TicketDone, TicketFailed, FailedWrite)]
    assert kinds == [TicketFailed, TicketDone]


def test_it_is_repeated_under_its_sequence_until_it_is_answered() -> None:
    """queue_guarantees.md §4, 10: on each next connection, in order, whatever the server's last sequence is."""
    harness = ready(7, recovers=True)
    first, second = harness.transact(2), harness.transact()
    assert harness.sequences() == [8, 11]
    harness.answer(first)
    for last in (10, 12, 12):
        harness.recover(last)
        assert harness.sequences() == [11]
    third = harness.transact()
    assert harness.sequences() == [13]
    harness.answer(second)
    harness.answer(third, "lease lost")
    harness.recover(14)
    assert harness.sequences() == []


def test_one_that_begins_without_a_connection_is_numbered_at_once() -> None:
    """queue_guarantees.md §4, 10: it follows those that are repeated."""
    harness = ready(recovers=True)
    harness.transact()
    harness.sent()
    harness.engine.connection_lost(harness.now, LOST)
    harness.transact()
    harness.logon(0)
    harness.engine.recover(harness.now)
    assert harness.sequences() == [1, 3]


def test_without_recovery_it_fails_with_the_connection() -> None:
    """queue_guarantees.md §4, 10."""
    harness = ready()
    ticket = harness.transact()
    harness.engine.connection_lost(harness.now, LOST)
    assert ticket.error is LOST


def test_a_higher_sequence_of_the_server_counts() -> None:
    """queue_guarantees.md §4, 2: another process of that name has used more."""
    harness = ready(5, recovers=True)
    harness.answer(harness.transact())
    harness.recover(90)
    harness.sent()
    harness.transact()
    assert harness.sequences() == [91]


def test_what_it_needs() -> None:
    """client.md §21, 82; queue_guarantees.md Q-37: no publish store, and a logon. Nothing is sent."""
    storing = Transacting(publish_store=MemoryPublishStore())
    storing.ready()
    with pytest.raises(UsageException, match="publish store"):
        storing.transact()
    assert storing.sent() == []
    early = Transacting()
    early.connect()
    with pytest.raises(UsageException, match="logon"):
        early.transact()
