"""Acknowledgements of messages that are not there: how many are remembered, and the refusal beyond that number."""

from pathlib import Path

import pytest

from tests.support.patched_servers import patched
from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml
from tests.support.server import StartServer

PER_CLIENT, OF_ALL = 3, 5
SMALL_BOUNDS = f"""
import amps.server.core.queues as queues
queues.DEFERRED_ACKS_PER_CLIENT_MAX, queues.DEFERRED_ACKS_MAX = {PER_CLIENT}, {OF_ALL}
"""
NO_ROOM = ("failure", "too many deferred acknowledgements")
TAKEN = ("success", "")


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers, tmp_path: Path) -> Queueing:
    """Two queues over T, with one bound."""
    queues = options(queue_xml("Q", "T"), queue_xml("Q2", "T"))
    return Queueing(start_server(**queues, environment=patched(tmp_path, SMALL_BOUNDS)), peers)


def unknown(*numbers: int, publisher: int = 5) -> list[str]:
    return [f"{publisher}|{number}|" for number in numbers]


def answered(client: RawClient, *bookmarks: str, **fields: str) -> tuple[str, str]:
    answer = acknowledge(client, *bookmarks, **fields)
    return str(answer["status"]), answer.reason


def first_of(queueing: Queueing) -> tuple[RawClient, Message]:
    client = queueing.consumer(1)
    (message,) = client.receive_published(1)
    return client, message


def test_queues_a_client_defers_so_many_acknowledgements(queueing: Queueing) -> None:
    """queues.md §8.5 sets no bound; this server does. Remembered ones may be sent again; each client has its own
    bound.
    """
    client, other = queueing.client(), queueing.client()
    for number in range(1, PER_CLIENT + 1):
        assert answered(client, *unknown(number)) == TAKEN
    assert answered(client, *unknown(9), queue="Q2") == NO_ROOM
    assert answered(client, *unknown(*range(1, PER_CLIENT + 1))) == TAKEN
    assert answered(client, *unknown(9), o="cancel") == TAKEN  # a cancel is not remembered
    answer = acknowledge(client, *unknown(9))
    assert "send the acknowledgement again" in str(answer["detail"])
    queueing.server.log.wait_for("02-0030", client.client_name, "too many deferred", count=2)
    assert answered(other, *unknown(9)) == TAKEN




def test_queues_an_instance_defers_so_many_acknowledgements(queueing: Queueing) -> None:
    """Over all queues and clients together. A client that leaves frees no room of remembered acknowledgements."""
    clients = [queueing.client() for _ in range(3)]
    assert answered(clients[0], *unknown(1, 2, 3)) == TAKEN
    assert answered(clients[1], *unknown(4, 5), queue="Q2") == TAKEN
    assert answered(clients[2], *unknown(6)) == NO_ROOM
    clients[0].close()
    assert answered(clients[2], *unknown(6)) == NO_ROOM
    queueing.server.restart()
    assert answered(queueing.client(), *unknown(6)) == NO_ROOM
    assert answered(queueing.client(), *unknown(1, 2, 3)) == TAKEN


def test_queues_a_list_for_which_there_is_no_room_does_nothing(queueing: Queueing) -> None:
    """A refusal changes nothing: the client sends the list again, or gets the message again."""
    queueing.publish(1)
    client, message = first_of(queueing)
    assert answered(client, *unknown(1, 2)) == TAKEN
    assert answered(client, str(message["bm"]), *unknown(8, 9)) == NO_ROOM
    assert answered(client, *unknown(8, 8)) == TAKEN
    client.close()
    client, message = first_of(queueing)
    assert message.body == bodies(1)[0]
    assert answered(client, *unknown(3)) == TAKEN
    assert answered(client, *unknown(4, 5)) == NO_ROOM
    # A message in the queue can be acknowledged, however many acknowledgements wait.
    assert answered(client, str(message["bm"])) == TAKEN
    assert queueing.waiting("Q", 0) == []


def test_queues_room_comes_back_with_the_messages(queueing: Queueing) -> None:
    """The messages were acknowledged before they came, and are not delivered."""
    publisher = queueing.client()
    client = queueing.client()
    publisher.publish("T", bodies(7)[0], s=1, a="persisted")
    publisher.wait_for_persisted(1)
    reader = queueing.consumer(1)
    (message,) = reader.receive_published(1)
    assert acknowledge(reader, message).succeeded
    publisher_id = int(str(message["bm"]).partition("|")[0])
    coming = unknown(2, 3, 4, publisher=publisher_id)
    assert answered(client, *coming) == TAKEN
    assert answered(client, *unknown(1)) == NO_ROOM
    publisher.publish("T", bodies(8)[0], s=2, a="persisted")
    publisher.wait_for_persisted(2)
    assert answered(client, *unknown(1)) == TAKEN
    assert answered(client, *unknown(2)) == NO_ROOM
    reader.expect_nothing_for(0.3)


def test_queues_a_client_without_room_is_answered_under_its_number(queueing: Queueing) -> None:
    """The failure has the sequence; a later sequence is accepted."""
    client = queueing.client()
    assert answered(client, *unknown(1, 2, 3)) == TAKEN
    client.send({"c": "sow_delete", "t": "Q", "bm": unknown(9)[0], "a": "persisted", "s": 1})
    refused = client.wait_for_ack("persisted")
    assert (refused["s"], refused["status"], refused.reason) == (1, *NO_ROOM)
    client.publish("T", bodies(1)[0], s=2, a="persisted")
    client.wait_for_persisted(2)
    # A command without an ack request can only be refused by closing its connection.
    client.send({"c": "sow_delete", "t": "Q", "bm": unknown(9)[0]})
    last = client.wait_for_close()[-1]
    assert last.reason == NO_ROOM[1]
