"""The transactions of a connection that are not answered: which are decided and durable, and the plain answers.

The rules are those of queue_guarantees.md §4, 11: answers have the command id and the last sequence, come in the order
of the commands, and not before the decision is durable.
"""

import random
from collections import deque

import pytest

from amps._core.shm.memory import ControlPage, Ring
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import Ingress, PendingTransactions
from amps._core.wire.topics import TopicTable
from tests.support.destinations import RECORD_BYTES, World

NEVER = 2**64 - 1


class Connection:
    """A connection whose transactions are put into a ring."""

    def __init__(self) -> None:
        self._ring = Ring(1 << 16)
        table = TopicTable(lambda topic, message_type: (True, False, None, None))
        self.ingress = Ingress(0, 1, self._ring, ControlPage(), table, 1 << 20)

    @property
    def pending(self) -> PendingTransactions:
        assert self.ingress.transactions is not None
        return self.ingress.transactions

    def add(self, first: int, publishes: int = 0, command_id: bytes | None = b"1") -> int:
        """Add a transaction; return the ring position behind it."""
        assert self._ring.push((64).to_bytes(4, "little") + bytes(60))
        self._ring.publish_pushed()
        self._ring.pop_all()
        self.ingress.note_transaction(first, publishes, command_id)
        return self._ring.pushed


@pytest.fixture
def connection() -> Connection:
    return Connection()


def success(command_id: str, last: int) -> bytes:
    """The answer as Python encodes it."""
    frame: bytes = encode_frame(
        {"cmd": "ack", "cmd_id": command_id, "ack_type": "persisted", "status": "success", "seq": last}
    )
    return frame


@pytest.mark.parametrize("last", [1, 9, 10, 4097, 2**64 - 1])
@pytest.mark.parametrize("command_id", ["1", "7/a b", "x" * 38])
def test_a_plain_answer_has_the_bytes_of_any_other(
    connection: Connection, command_id: str, last: int
) -> None:
    """§4, 11."""
    position = connection.add(last, 0, command_id.encode())
    assert connection.pending.decide(position, 500, 0) is None
    assert connection.pending.answers(500) == (success(command_id, last), False)


@pytest.mark.parametrize("command_id", [b"", b"x" * 39, b'a"b', b"a\\b", b"\x1f", b"\x7f", "ä".encode()])
def test_other_ids_are_for_python(connection: Connection, command_id: bytes) -> None:
    with pytest.raises(ValueError, match="command id"):
        connection.add(1, 0, command_id)
    assert connection.ingress.transactions is None


def test_an_answer_waits_for_the_core_and_for_the_disk(connection: Connection) -> None:
    position = connection.add(5, 2)
    pending = connection.pending
    assert connection.ingress.has_transactions
    assert pending.decide(position - 1, 500, 0) is None
    assert (pending.undecided, pending.awaits_durable, len(pending)) == (1, False, 1)
    assert pending.answers(NEVER) == (b"", False)
    assert pending.decide(position, 500, 0) is None
    assert (pending.undecided, pending.awaits_durable, len(pending)) == (0, True, 1)
    assert not connection.ingress.has_transactions
    assert pending.answers(499) == (b"", False)
    assert pending.answers(500) == (success("1", 7), False)
    assert (pending.awaits_durable, len(pending)) == (False, 0)


def test_a_refused_one_is_for_python_in_its_place(connection: Connection) -> None:
    """§4, 3."""
    position = 0
    for number in range(1, 5):
        position = connection.add(number, 0, b"%d" % number)
    pending = connection.pending
    assert pending.decide(position, 500, 3) == (b"3", 3, 3)
    assert pending.decide(position, 600, 0) is None
    assert pending.answers(500) == (success("1", 1) + success("2", 2), True)
    assert pending.answers(500) == (b"", False)
    assert pending.answers(600) == (success("4", 4), False)


def test_one_that_python_answers_is_told_whatever_becomes_of_it(connection: Connection) -> None:
    connection.add(1, 1, None)
    position = connection.add(3, 0, None)
    pending = connection.pending
    assert pending.decide(position, 9, 3) == (b"", 1, 2)
    assert pending.decide(position, 9, 3) == (b"", 3, 3)
    assert pending.decide(position, 9, 0) is None
    assert pending.answers(9) == (b"", True)
    assert pending.answers(9) == (b"", True)
    assert pending.answers(9) == (b"", False)


@pytest.mark.parametrize("seed", range(4))
def test_any_number_of_them_in_order(connection: Connection, seed: int) -> None:
    """The memory grows and wraps around; compared with queues of Python."""
    chance = random.Random(seed)
    undecided: deque[tuple[int, int]] = deque()  # first sequence, ring position
    decided: deque[tuple[int, int, bool]] = deque()  # first sequence, log position, refused
    first = written = 0
    most = 0
    for step in range(3000):
        for _ in range(chance.randrange(4) if step % 200 < 150 else 0):
            first += 1
            undecided.append((first, connection.add(first, 0, b"%d" % first)))
        most = max(most, len(undecided) + len(decided))
        if not undecided and not decided:
            continue
        pending = connection.pending
        if undecided and chance.random() < 0.5:
            count = chance.randrange(len(undecided)) + 1
            consumed = undecided[count - 1][1]
            refused = undecided[chance.randrange(count)][0] if chance.random() < 0.3 else 0
            written += 10
            told = pending.decide(consumed, written, refused)
            assert told == ((b"%d" % refused, refused, refused) if refused else None)
            while told is not None:
                told = pending.decide(consumed, written, 0)
            for _ in range(count):
                one = undecided.popleft()[0]
                decided.append((one, written, one == refused))
        durable = max(0, written - 10 * chance.randrange(3))
        attended = True
        while attended:
            frames, attended = pending.answers(durable)
            expected = b""
            while decided and decided[0][1] <= durable and not decided[0][2]:
                expected += success(str(decided[0][0]), decided.popleft()[0])
            assert frames == expected
            assert attended == bool(decided and decided[0][1] <= durable)
            if attended:
                decided.popleft()
        assert len(pending) == len(undecided) + len(decided)
    assert most > 16


def test_an_answer_waits_for_the_destinations_of_replication(connection: Connection) -> None:
    """replication.md §7: of two decided transactions, the destination lacks the records of the second."""
    world = World(1)
    pending = None
    for number in (1, 2):
        position = connection.add(number, 0, b"%d" % number)
        world.publish(101, {0})
        pending = connection.pending
        assert pending.decide(position, world.end, 0) is None
    assert pending is not None
    world.scan(0, 2)
    assert pending.answers(NEVER, world.destinations, 101) == (b"", False)
    assert pending.awaited_position == RECORD_BYTES
    assert pending.answers(NEVER, world.destinations, 102) != (b"", False), "those of another publisher are not"
    assert pending.awaited_position == 0


def test_answers_of_either_kind_wait_for_the_destinations_of_replication(connection: Connection) -> None:
    world = World(1)
    for number in (1, 2, 3):
        position = connection.add(number, 0, b"%d" % number if number != 2 else None)
        world.publish(101, {0})
        told = connection.pending.decide(position, world.end, 0)
        assert (told is None) == (number != 2)
        connection.pending.decide(position, world.end, 0)
    world.scan(0, 3)
    pending = connection.pending
    world.acknowledge(0, 1)
    assert pending.answers(NEVER, world.destinations, 101) == (success("1", 1), False)
    assert pending.awaited_position == 2 * RECORD_BYTES
    world.acknowledge(0, 1)
    assert pending.answers(NEVER, world.destinations, 101) == (b"", True)
    assert pending.answers(NEVER, world.destinations, 101) == (b"", False)
    world.change_mode(0)
    assert pending.answers(NEVER, world.destinations, 101) == (success("3", 3), False)
