"""The file with the last message of each publisher: it is read as written, and damage is noticed."""

from pathlib import Path

import numpy
import pytest

from amps._core.journal.writer import SUMMARY_DTYPE
from amps.journal.clients_ack import (
    ClientsAck,
    ClientsAckDamaged,
    Rows,
    read_clients_ack,
    summary_of,
    write_clients_ack,
)
from amps.journal.disk import Disk


def summary(*rows: tuple[int, int, int]) -> Rows:
    """A publisher's (publisher, last sequence, time)."""
    return numpy.array([(publisher, 1, last, time) for publisher, last, time in rows], SUMMARY_DTYPE)


def test_later_summaries_count() -> None:
    ack = ClientsAck()
    ack.take(summary((5, 10, 100), (1, 3, 50)))
    ack.take(summary())
    ack.take(summary((1, 4, 200), (9, 1, 200)))
    ack.take(summary((5, 2, 300)))  # the publisher started its sequence again
    assert ack.last_sequences() == {1: 4, 5: 2, 9: 1}
    assert ack.forget_before(201) == 2
    assert ack.last_sequences() == {5: 2}
    ack.take(summary_of({7: (1, 8, 400)}))
    assert ack.last_sequences() == {5: 2, 7: 8}


def test_the_numbers_of_upstreams_are_never_forgotten(tmp_path: Path) -> None:
    """InactiveClientAckExpiration is for clients."""
    names = {2: "amps-server: from B e1 e2", 3: "amps-server", 4: "amps-server: B/queue"}
    ack = ClientsAck(names=names)
    ack.take(summary((1, 4, 100), (2, 5, 100), (3, 6, 100), (4, 7, 100), (5, 8, 300)))
    write_clients_ack(Disk(), tmp_path / "x", ack)
    ack = read_clients_ack(tmp_path / "x")
    assert ack.forget_before(201) == 2
    assert ack.last_sequences() == {2: 5, 4: 7, 5: 8}


def test_it_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "x.clients.ack"
    names = {1: "one", 5: "fünf \udc80", 77: "nobody"}
    ack = ClientsAck(4096, 3, 1024, 99, names=names)
    ack.take(summary((5, 10, 100), (1, 1 << 63, 50)))
    write_clients_ack(Disk(), path, ack)
    found = read_clients_ack(path)
    assert found.last_sequences() == {1: 1 << 63, 5: 10}
    assert found.names == {1: "one", 5: "fünf \udc80"}
    assert (found.position, found.journal_number, found.start_position, found.first_txid) == (
        4096,
        3,
        1024,
        99,
    )
    write_clients_ack(Disk(), path, ClientsAck())
    assert read_clients_ack(path).last_sequences() == {}
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.clients.ack"
    ack = ClientsAck(names={1: "one"})
    ack.take(summary((5, 10, 100), (1, 7, 50)))
    write_clients_ack(Disk(), path, ack)
    image = path.read_bytes()
    for place in range(len(image)):
        path.write_bytes(image[:place] + bytes([image[place] ^ 1]) + image[place + 1 :])
        with pytest.raises(ClientsAckDamaged):
            read_clients_ack(path)
        path.write_bytes(image[:place])
        with pytest.raises(ClientsAckDamaged):
            read_clients_ack(path)
    path.write_bytes(image + b"x")
    with pytest.raises(ClientsAckDamaged):
        read_clients_ack(path)


def test_refused_transactions_are_read_as_written(tmp_path: Path) -> None:
    """queue_guarantees.md §4, 6: they outlive their journals; without any the file is as before."""
    path = tmp_path / "x.clients.ack"
    ack = ClientsAck(10, 1, 4, 5, names={1: "one"})
    ack.take(summary((1, 50, 100), (2, 9, 100)))
    write_clients_ack(Disk(), path, ack)
    before = path.read_bytes()
    assert before[8] == 1
    # Those behind the position may be lost with the end of the log.
    ack.set_refused({1: [3, 49, 51], 2: [10], 3: [1]})
    assert ack.refused == {1: [3, 49]}
    ack.take_refused([(2, 4, 6), (1, 50, 50), (2, 7, 9)])
    write_clients_ack(Disk(), path, ack)
    assert path.read_bytes()[8] == 2
    assert len(path.read_bytes()) == len(before) + 2 * 12 + 5 * 8
    found = read_clients_ack(path)
    assert found.refused == {1: [3, 49, 50], 2: [4, 7]}
    assert found.names == {1: "one"}
    data = path.read_bytes()
    for cut in (1, 8, 40):
        path.write_bytes(data[:-cut])
        with pytest.raises(ClientsAckDamaged):
            read_clients_ack(path)
    assert ack.forget_before(101) == 2
    assert ack.refused == {}


def test_only_the_latest_refused_transactions_are_kept() -> None:
    """queue_guarantees.md §4, 6: at most 10,000 of a publisher."""
    ack = ClientsAck()
    ack.take(summary((1, 20_000, 1)))
    ack.set_refused({1: range(1, 12_001)})
    assert ack.refused[1] == list(range(2001, 12_001))
    ack.take_refused([(1, 12_001, 12_001)])
    assert ack.refused[1] == list(range(2002, 12_002))
