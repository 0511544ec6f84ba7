"""Statistics of destinations in shared memory (replication.md §17)."""

import os
import threading

from amps.server.replication_statistics import Peer, ReplicationStatistics

PEER = Peer("b", "g", "b:8085", "a!b!sync!amps-replication", "me")


def test_a_destination_begins_with_nothing() -> None:
    (one,) = ReplicationStatistics(1).destinations
    facts = one.read()
    assert (facts.is_connected, facts.messages_out, facts.disconnect_count, facts.peer) == (
        False,
        0,
        0,
        Peer(),
    )
    assert (facts.connect_time_ns, facts.disconnect_time_ns, facts.behind_ns) == (0, 0, 0)
    assert ReplicationStatistics(0).destinations == []


def test_replication_53_connections_are_counted() -> None:
    """replication.md §26 53: `disconnect_count` rises by one per loss, `disconnect_time` is set."""
    first, second = ReplicationStatistics(2).destinations
    first.connected(PEER, 10)
    assert (first.is_connected, first.read().connect_time_ns, first.read().peer) == (True, 10, PEER)
    first.disconnected(20)
    first.disconnected(30)
    facts = first.read()
    assert (facts.is_connected, facts.disconnect_count, facts.disconnect_time_ns) == (False, 1, 20)
    assert facts.peer == PEER
    first.connected(Peer("c"), 40)
    assert first.read().peer == Peer("c")
    assert second.read().connect_time_ns == 0


def test_what_was_sent_is_added_up() -> None:
    """replication.md §17: cumulative"""
    (one,) = ReplicationStatistics(1).destinations
    one.count(3, 100)
    one.count(2, 50)
    one.set_behind(2_500_000_000)
    facts = one.read()
    assert (facts.messages_out, facts.bytes_out, facts.behind_ns) == (5, 150, 2_500_000_000)
    one.set_behind(-1)
    assert one.read().behind_ns == 0


def test_a_new_process_goes_on_counting() -> None:
    """The connection of a process that died is lost, and one that died within a change does not stop readers."""
    statistics = ReplicationStatistics(1)
    (one,) = statistics.destinations
    one.connected(PEER, 10)
    one.count(3, 100)
    one._texts[3:5] = b"xx"  # in the middle of a change
    assert one.read().peer == Peer()
    one.begin(50)
    facts = one.read()
    assert (facts.is_connected, facts.messages_out, facts.disconnect_count, facts.disconnect_time_ns) == (
        False,
        3,
        1,
        50,
    )
    one.connected(PEER, 60)
    assert one.read().peer == PEER
    statistics.reset()
    assert one.read().messages_out == 0
    assert one.read().peer == Peer()


def test_long_names_fit() -> None:
    """Texts of the peer are hostile: each is cut."""
    (one,) = ReplicationStatistics(1).destinations
    one.connected(Peer(*["ü" * 5000] * 5), 1)
    peer = one.read().peer
    assert peer.name == peer.authenticated_id == "ü" * 256


def test_other_processes_see_the_same() -> None:
    """The memory is shared with processes that are forked later."""
    (one,) = ReplicationStatistics(1).destinations
    pid = os.fork()
    if pid == 0:
        one.connected(PEER, 10)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert one.read().peer == PEER


def test_a_reader_never_sees_half_a_change() -> None:
    """Each text of a peer is that of the same connection."""
    (one,) = ReplicationStatistics(1).destinations
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            one.connected(Peer(*[str(number % 7) * 100] * 5), number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2000):
            peer = one.read().peer
            assert (
                len({peer.name, peer.group, peer.admin_address, peer.client_name, peer.authenticated_id}) == 1
            )
    finally:
        stop.set()
        writer.join()
