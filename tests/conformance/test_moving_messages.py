"""`amps subscribe -move`: a message goes to another topic and leaves its queue, or neither (queue_guarantees.md §4).

The command is killed, refused and interrupted; afterwards each message is in the queue or in the other topic.
"""

import json
import signal
import subprocess
import time

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


@pytest.mark.parametrize("backlog", ["1", "50"])
def test_messages_whose_leases_end_while_the_output_is_blocked_are_moved_once(
    start_server: StartServer, backlog: str
) -> None:
    """queue_guarantees.md §4, 3: the queue delivers them again, to the same command."""
    queue = queue_xml("Q", "T", MaxPerSubscriptionBacklog=50, LeasePeriod="500ms")
    server = start_server(**options(queue, queue_xml("R", "TR")))
    with client_of(server) as client:
        for number in range(60):
            client.publish("T", {"id": number, "long": "x" * 3000})
        client.flush()
        moving = subprocess.Popen(
            [*COMMAND, *move(server, "TR", "-backlog", backlog, "-timeout", "1.5")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        try:
            assert moving.stdout is not None
            moving.stdout.read(1)
            time.sleep(1.2)  # its output is blocked, and leases end
            printed, errors = moving.communicate(timeout=WAIT_S)
        finally:
            moving.kill()
            moving.wait(WAIT_S)
        assert moving.returncode == 0, errors
        assert printed.count(b"\n") >= 60
        stream = client.bookmark_subscribe("TR", "epoch").set_timeout(1)
        moved = [message for message in iter(lambda: next(stream), None) if message is not None]
        assert sorted(ids([message.json() for message in moved])) == list(range(60))
        assert client.sow_count("Q") == 0


def test_at_most_once_it_says_that_the_message_has_gone(start_server: StartServer) -> None:
    queue = queue_xml("Q", "T", Semantics="at-most-once", MaxPerSubscriptionBacklog=5)
    server = start_server(**options(queue, queue_xml("R", "TR")))
    with client_of(server) as client:
        publish(client, 1)
        done = run(*move(server, "TR", "-timeout", "1"))
        assert done.returncode == 1
        assert b"1 printed messages are not moved" in done.stderr
        assert b"a queue with at-least-once semantics delivers them again" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("action", [["-ack"], ["-move", "TR"]])
def test_ctrl_c_while_a_body_is_written_leaves_it_whole(
    server: ServerProcess, action: list[str], unbuffered: str
) -> None:
    """docs/guide/command-line.md: a command ends between two messages. The reader of the output is slow."""
    with client_of(server) as client:
        for number in range(3):
            client.publish("T", {"id": number, "long": "x" * 200_000})
        client.flush()
        command = ["subscribe", *server_option(server), "-type", "json", "-topic", "Q", *action, "-backlog", "3"]
        receiving = subprocess.Popen(
            [*COMMAND, *command],
            stdout=subprocess.PIPE,
            env={**environment(), "PYTHONUNBUFFERED": unbuffered},
            bufsize=0,
        )
        try:
            assert receiving.stdout is not None
            beginning = receiving.stdout.read(1000)
            time.sleep(0.3)
            receiving.send_signal(signal.SIGINT)
            time.sleep(0.3)
            rest, _ = receiving.communicate(timeout=WAIT_S)
        finally:
            receiving.kill()
            receiving.wait(WAIT_S)
        assert receiving.returncode == 0
        printed = (beginning + rest).decode().splitlines()
        assert ids([json.loads(line) for line in printed]) == list(range(len(printed)))
        assert 1 <= len(printed) < 3
        wait_until(lambda: client.sow_count("Q") == 3 - len(printed), WAIT_S, lambda: str(client.sow_count("Q")))
