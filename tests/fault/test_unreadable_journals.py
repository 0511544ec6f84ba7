"""Journals of which a part cannot be read any more, because a file was truncated under a running server.

An access to a page of a mapped file that cannot be read kills the process. That must not happen: only the replay that
needs the page ends.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.peer import RawClient, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until

CUT_OFF_AT = 6 << 20
BODY_BYTES = 10_000
TOPIC_INDEX = (
    "<Tuning><Transport><Workers>1</Workers></Transport>"
    "<TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog></Tuning>"
)


def cut_off(server: ServerProcess) -> Path:
    first = server.journals()[0]
    os.truncate(first, CUT_OFF_AT)
    return first


def filled(
    start_server: StartServer, peers: Peers, *, topic_index: bool = False
) -> tuple[ServerProcess, list[bytes]]:
    """One worker; three journals, in which one topic has all messages except each hundredth."""
    options: dict[str, Any] = {"transport_workers": 1}
    if topic_index:
        options = {"transport_workers": None, "instance_xml": TOPIC_INDEX}
    server = start_server(name="L1", log_topics=("t/.*",), **options)
    bodies = numbered_bodies(2500, padding_bytes=BODY_BYTES)
    publisher = peers.logged_on(server)
    for number, body in enumerate(bodies):
        publisher.publish("t/rare" if number % 100 == 99 else "t/sp", body, s=number + 1)
    publisher.flush("persisted", timeout_s=60)
    assert len(server.journals()) >= 3
    if topic_index:
        index = server.journal_directory / "L1.0000000000.topic.index"
        wait_until(index.exists, 30, "no topic index appears")
    return server, bodies


def ended(reader: RawClient) -> list[bytes]:
    """Return the messages that come until the server closes the connection."""
    return bodies_of(m for m in reader.wait_for_close(timeout_s=60) if m.command == "p")


def common(bodies: Sequence[bytes]) -> list[bytes]:
    return [body for number, body in enumerate(bodies) if number % 100 != 99]


def test_fault_a_journal_cut_off_under_a_replay_ends_that_replay_and_nothing_else(
    start_server: StartServer, peers: Peers
) -> None:
    """The remaining messages are delivered. Another client of the same worker is not disturbed, nor are replays that
    begin behind the damage. Every retry ends too.
    """
    server, bodies = filled(start_server, peers)
    wanted = common(bodies)
    pids = server.transport_pids()
    bystander = peers.logged_on(server)
    bystander.subscribe("t/live", "live")
    early = peers.logged_on(server)
    early.subscribe("t/sp", "all", bm="0")
    bookmarks = bookmarks_of(early.receive_published(len(wanted), timeout_s=60))
    reader = peers.logged_on(server)
    reader.subscribe("t/sp", "r", bm="0", o="rate=300")
    got = bodies_of(reader.receive_published(100, timeout_s=60))
    cut_off(server)
    got += ended(reader)
    assert got == wanted[: len(got)]
    assert CUT_OFF_AT // (BODY_BYTES + 1000) < len(got) <= CUT_OFF_AT // BODY_BYTES
    server.log.wait_for("1D-0010", "the file ends here")
    for _ in range(6):  # more than the number of deaths of a worker that is allowed within a minute
        again = peers.logged_on(server)
        again.send({"c": "subscribe", "t": "t/sp", "bm": "0", "sub_id": "r"})
        came = ended(again)
        assert came == wanted[: min(len(came), len(got))]
    behind = peers.logged_on(server)
    behind.subscribe("t/sp", "b", bm=bookmarks[1500])
    assert bodies_of(behind.receive_published(len(wanted) - 1501, timeout_s=60)) == wanted[1501:]
    bystander.publish("t/live", b"goes on")
    assert bystander.receive().body == b"goes on"
    assert server.transport_pids() == pids


def test_fault_a_replay_by_the_topic_index_ends_where_its_journal_was_cut_off(
    start_server: StartServer, peers: Peers
) -> None:
    """It steps from one message to the next, and reads none in the missing part."""
    server, bodies = filled(start_server, peers, topic_index=True)
    wanted = bodies[99::100]
    pids = server.transport_pids()
    reader = peers.logged_on(server)
    reader.subscribe("t/rare", "r", bm="0", o="rate=2")
    got = bodies_of(reader.receive_published(1, timeout_s=60))
    cut_off(server)
    got += ended(reader)
    assert got == wanted[: len(got)]
    assert len(got) == CUT_OFF_AT // (100 * (BODY_BYTES + 100))
    server.log.wait_for("1D-0010", "the file ends here")
    assert server.transport_pids() == pids
