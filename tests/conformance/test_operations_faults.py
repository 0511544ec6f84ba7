"""Unforeseen exceptions: each ends at most one connection, and the event log reports it."""

import pytest

from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer


@pytest.fixture
def faulty(start_server: StartServer) -> ServerProcess:
    return start_server(log_topics=("t1",), module="tests.support.faulty", transport_workers=1)


def test_a_command_that_fails_unexpectedly_ends_its_connection_and_is_logged(
    faulty: ServerProcess, peers: Peers
) -> None:
    """operations.md §6: with the place and the traceback; other connections are not affected."""
    other = peers.logged_on(faulty)
    other.subscribe("t1", "other")
    for number, held in enumerate((False, True)):
        client = peers.logged_on(faulty)
        client.subscribe("t1", "before", bm="0")
        # After that many commands the next ones are processed in a turn of the worker.
        for _ in range(450 if held else 0):
            client.send({"c": "heartbeat", "a": "processed", "o": "beat"})
        client.send({"c": "subscribe", "t": f"fault {number}", "cid": "1", "a": "processed"})
        client.wait_for_close()
        (record,) = faulty.log.wait_for("01-0005", f"fault {number}")
        assert record.level == "error"
        assert client.client_name in record.text
        assert "Traceback" in record.text
        assert "faulty_subscribe" in record.text
    other.publish("t1", b"still here")
    assert other.receive_published(1)[0].body == b"still here"


def test_a_callback_that_fails_unexpectedly_is_logged(faulty: ServerProcess, peers: Peers) -> None:
    """operations.md §6: of a connection and of a timer, for every callback of the event loop."""
    beating = peers.logged_on(faulty)
    beating.request({"c": "heartbeat", "o": "start,50ms"})
    (record,) = faulty.log.wait_for("01-0005", "told to fail: heartbeat")
    assert "faulty_beat" in record.text
    ending = peers.logged_on(faulty)
    ending.subscribe("at-the-end", "s")
    ending.close()
    (record,) = faulty.log.wait_for("01-0005", "told to fail: the end")
    assert "connection " in record.text
    assert "faulty_end" in record.text
    beating.publish("t1", b"still here")
    beating.flush()
