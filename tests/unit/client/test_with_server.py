"""The client against a real server, for behaviour that a scripted peer cannot prove."""

import queue

import pytest

from amps.client import EPOCH, Client
from amps.client.errors import InvalidSubIdException
from amps.client.protocol.message import Message
from tests.support.server import StartServer


def test_a_subscription_is_paused_and_resumed(start_server: StartServer) -> None:
    """protocol.md D16, transaction_log.md §9: pausing needs no topic.

    Messages published meanwhile are delivered later.
    """
    server = start_server(log_topics=[".*"])
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take(message: Message) -> None:
        got.put(message.data)

    with Client("pausing", f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.bookmark_subscribe("t", EPOCH, handler=take, sub_id="S")
        client.publish("t", "1")
        assert got.get(timeout=20) == b"1"
        client.pause("S")
        client.publish("t", "2")
        client.flush()
        client.publish("t", "3")
        with pytest.raises(queue.Empty):
            got.get(timeout=0.5)
        client.resume("S")
        assert [got.get(timeout=20) for _ in range(2)] == [b"2", b"3"]
        with pytest.raises(InvalidSubIdException, match="other"):
            client.resume("other")


def test_a_stream_ends_with_its_range_or_its_number(start_server: StartServer) -> None:
    """client.md §19.4: replays with `top_n` or a range end by themselves, even if the filter matches no message."""
    server = start_server(log_topics=[".*"])
    with Client("ending", f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        for number in range(5):
            client.publish("t", f'{{"n":{number}}}')
        client.flush()
        everything = list(client.bookmark_subscribe("t", "[0:0|1|]"))
        assert [message.json()["n"] for message in everything] == [0, 1, 2, 3, 4]
        middle = f"({everything[1].bookmark}:{everything[3].bookmark}]"
        assert [m.json()["n"] for m in client.bookmark_subscribe("t", middle)] == [2, 3]
        assert list(client.bookmark_subscribe("t", "[0:0|1|]", filter="/n > 10")) == []
        assert [m.json()["n"] for m in client.bookmark_subscribe("t", EPOCH, top_n=2)] == [0, 1]
