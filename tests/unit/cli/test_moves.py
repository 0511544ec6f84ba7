"""`-move`: each message is moved once, however often it was delivered and printed (queue_guarantees.md §4, 3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amps.cli.receiving import MOVED_AT_ONCE_BYTES, Moves
from amps.client import CommandException, Message, TransactionRefusedException


class Server:
    """Plays the client and its server: what is leased, and what was published."""

    def __init__(self, *leased: int) -> None:
        self.leased = set(leased)
        self.published: list[bytes] = []
        self.sizes: list[int] = []

    @contextmanager
    def transaction(self, *messages: Message) -> Iterator["Server"]:
        before = list(self.published)
        yield self
        numbers = {number_of(message) for message in messages}
        if not numbers <= self.leased:
            self.published = before
            raise TransactionRefusedException("lease lost")
        self.leased -= numbers
        self.sizes.append(len(messages))

    def publish(self, topic: str, data: bytes, **fields: Any) -> None:
        assert topic == "TR"
        self.published.append(data)


def delivery(number: int, body: bytes = b"") -> Message:
    return Message(b'{"c":"p","t":"Q","bm":"1|%d|","lp":"1"}%d%b' % (number, number, body))


def number_of(message: Message) -> int:
    assert message.bookmark is not None
    return int(message.bookmark.split("|")[1])


def settle(moves: Moves, server: Server, *messages: Message) -> None:
    printed = list(messages)
    moves.settle(server, printed)  # type: ignore[arg-type]
    assert printed == []


def test_copies_are_moved_once_also_when_the_second_comes_later() -> None:
    server, moves = Server(1, 2, 3), Moves("TR")
    settle(moves, server, delivery(1), delivery(2), delivery(1))
    settle(moves, server, delivery(2), delivery(3), delivery(1))
    assert server.published == [b"1", b"2", b"3"]
    moves.check()


def test_one_lost_lease_keeps_back_no_other_message() -> None:
    server, moves = Server(1, 3), Moves("TR")
    settle(moves, server, delivery(1), delivery(2), delivery(3))
    assert server.published == [b"1", b"3"]
    with pytest.raises(CommandException, match=r"1 printed messages are not moved: .*lease lost"):
        moves.check()
    server.leased.add(2)
    settle(moves, server, delivery(2))  # the queue has delivered it again
    assert server.published == [b"1", b"3", b"2"]
    moves.check()


def test_a_transaction_has_a_limit_which_one_message_may_exceed() -> None:
    server, moves = Server(*range(5)), Moves("TR")
    half = bytes(MOVED_AT_ONCE_BYTES // 2)
    settle(moves, server, delivery(0, half), delivery(1, half[:-10]), delivery(2, half * 3), delivery(3), delivery(4))
    assert server.sizes == [2, 1, 2]
