"""`amps subscribe -move`: a message goes to another topic and leaves its queue, or neither (queue_guarantees.md §4).

The command is killed, refused and interrupted; afterwards each message is in the queue or in the other topic.
"""

import json
import subprocess

import pytest

from amps.client import Client
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.unit.cli.running import COMMAND, environment, run, server_option

WAIT_S = 30.0


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    queues = (queue_xml("Q", "T", MaxPerSubscriptionBacklog=2000), queue_xml("R", "TR"))
    return start_server(**options(*queues))


def client_of(server: ServerProcess) -> Client:
    return Client("test", f"tcp://127.0.0.1:{server.port()}/amps/json")


def publish(client: Client, count: int) -> None:
    for number in range(count):
        client.publish("T", {"id": number})
    client.flush()


def move(server: ServerProcess, to: str, *more: str) -> list[str]:
    return ["subscribe", *server_option(server), "-type", "json", "-topic", "Q", "-move", to, *more]


def ids(messages: list[dict[str, int]]) -> list[int]:
    return [message["id"] for message in messages]


def test_the_messages_are_in_the_other_topic_and_not_in_the_queue(server: ServerProcess) -> None:
    """queue_guarantees.md §7, 18: in order, with correlation ids; also those of more than one transaction."""
    with client_of(server) as client:
        client.publish("T", b"x" * 700_000, correlation_id="aWQ=")
        client.publish("T", b"y" * 700_000)
        publish(client, 20)
        done = run(*move(server, "TR", "-backlog", "2000", "-timeout", "1"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(b"\n") == 22
        assert client.sow_count("Q") == 0
        stream = client.bookmark_subscribe("TR", "epoch").set_timeout(1)
        moved = [message for message in iter(lambda: next(stream), None) if message is not None]
        assert [len(message.data) for message in moved[:2]] == [700_000, 700_000]
        assert moved[0].correlation_id == "aWQ="
        assert ids([message.json() for message in moved[2:]]) == list(range(20))


@pytest.mark.parametrize(
    ("to", "topic", "told"),
    [
        ("nowhere", "Q", "not recorded"),
        ("TR", "TR", "'TR' cannot be moved: a transaction acknowledges messages that a queue has delivered"),
    ],
)
def test_what_cannot_be_moved_stays(start_server: StartServer, to: str, topic: str, told: str) -> None:
    """queue_guarantees.md §7, 21"""
    server = start_server(log_topics=("^T",), instance_xml=f"<SOW>{queue_xml('Q', 'T')}</SOW>")
    with client_of(server) as client:
        publish(client, 1)
        arguments = move(server, to, "-timeout", "5")
        arguments[arguments.index("Q")] = topic
        moving = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, env=environment())
        try:
            if topic == "TR":
                while moving.poll() is None:
                    client.publish("TR", {"id": 9})
                    client.flush()
            _, errors = moving.communicate(timeout=WAIT_S)
        finally:
            moving.kill()
            moving.wait(WAIT_S)
        assert moving.returncode == 1, errors
        assert told in errors.decode()
        wait_until(lambda: client.sow_count("Q") == 1, WAIT_S, "the message has gone")


def test_a_bookmark_does_not_go_with_it(server: ServerProcess) -> None:
    done = run(*move(server, "TR", "-bookmark", "epoch"))
    assert done.returncode == 2
    assert b"-ack, -move and -backlog are for queues" in done.stderr


def test_18_killed_it_moves_each_message_once(server: ServerProcess) -> None:
    """queue_guarantees.md §7, 18: kill -9 in the middle, again and again."""
    count = 300
    with client_of(server) as client:
        publish(client, count)
        moved: list[int] = []
        stream = client.bookmark_subscribe("TR", "epoch")
        while len(moved) < count:
            before = len(moved)
            moving = subprocess.Popen(
                [*COMMAND, *move(server, "TR", "-backlog", "5")], stdout=subprocess.DEVNULL, env=environment()
            )
            try:
                while len(moved) < min(count, before + 60):
                    message = stream.get(WAIT_S)
                    assert message is not None
                    moved.append(json.loads(message.data)["id"])
            finally:
                moving.kill()
                moving.wait(WAIT_S)
        assert stream.get(0.5) is None
        assert sorted(moved) == list(range(count))
        assert client.sow_count("Q") == 0
