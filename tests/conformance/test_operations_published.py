"""Actions on published messages of a running server (operations.md §9.2). Those by the origin of a message are in
test_replication_events.py.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until
from tests.support.services import action, do, echo, on, when

VARIABLES = ("TOPIC", "DATA", "DATA_LENGTH", "BOOKMARK", "TIMESTAMP", "CLIENT_NAME")
PATIENCE_S = 30


def published(topic: str, *steps: str, **options: str) -> str:
    return action(on("publish-message", Topic=topic, MessageType="json", **options), *steps)


def told(name: str) -> str:
    return echo(f"{name}: " + "|".join(f"{{{{AMPS_{variable}}}}}" for variable in VARIABLES))


def echoed(server: ServerProcess, name: str) -> list[str]:
    texts = [record.text for record in server.log.find("29-0001")]
    return [text.removeprefix(f"{name}: ") for text in texts if text.startswith(f"{name}: ")]


def wait_for_echoes(server: ServerProcess, name: str, count: int) -> list[str]:
    wait_until(
        lambda: len(echoed(server, name)) >= count, PATIENCE_S, lambda: f"{name}: {echoed(server, name)}"
    )
    return echoed(server, name)


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    """Each test has topics of its own."""
    events = [
        published("^[LM]/variables$", told("variables")),
        published("L/filter", told("filter"), Filter="/x &gt; 1"),
        published("L/filter", told("user"), Filter="USER() IS NULL AND TOPIC_NAME() = 'L/filter'"),
        published("L/first", do("publish-message", Topic="M/second", MessageType="json", Data="{{AMPS_DATA}}!")),
        published("M/second", told("second")),
        published("L/many", told("many")),
    ]
    return start_module_server(
        log_topics=("^L/",),
        instance_xml=f"<Actions>{''.join(events)}</Actions>",
    )


def test_operations_9_2_the_variables_of_a_published_message(peers: Peers, server: ServerProcess) -> None:
    """operations.md §9.2: topics by an expression; a message that is not recorded has no bookmark. The publisher's name
    is in the journal.
    """
    client = peers.logged_on(server)
    client.publish("L/variables", b'{"x":"\xc3\xbc"}', s=7)
    client.publish("M/variables", b"{}")
    client.publish("LL/variables", b"{}")
    client.flush()
    reader = peers.logged_on(server)
    reader.subscribe("L/variables", bm="0", o="timestamp")
    (message,) = reader.receive_published(1)
    first, second = sorted(wait_for_echoes(server, "variables", 2))
    assert first == f'L/variables|{{"x":"ü"}}|10|{message["bm"]}|{message["ts"]}|{client.client_name}'
    assert re.fullmatch(rf"M/variables\|\{{\}}\|2\|\|\d{{8}}T\d{{6}}\.\d{{6}}Z\|{client.client_name}", second)


def test_operations_9_2_a_filter_chooses_messages(peers: Peers, server: ServerProcess) -> None:
    """operations.md §9.2: two events with the same topic and different filters."""
    client = peers.logged_on(server)
    client.publish_all("L/filter", [b'{"x":1}', b'{"x":2}', b"no json", b'{"x":3}'])
    client.flush()
    assert [text.split("|")[1] for text in wait_for_echoes(server, "filter", 2)] == ['{"x":2}', '{"x":3}']
    assert len(wait_for_echoes(server, "user", 4)) == 4


def test_operations_9_2_a_message_of_an_action_is_a_published_message(
    peers: Peers, server: ServerProcess
) -> None:
    """operations.md §9.3: it may run actions again."""
    client = peers.logged_on(server)
    client.publish("L/first", b"1")
    assert wait_for_echoes(server, "second", 1)[0].startswith("M/second|1!|2|")


def test_operations_9_2_recorded_messages_wait_for_slower_actions(peers: Peers, server: ServerProcess) -> None:
    """More messages than may wait at once: each has its action, in the order of the log."""
    client = peers.logged_on(server)
    bodies = numbered_bodies(5000)
    client.publish_persisted("L/many", bodies, 1)
    found = wait_for_echoes(server, "many", 5000)
    assert [text.split("|")[1].encode() for text in found] == bodies


@pytest.mark.parametrize(("count", "length"), [(3000, 10), (700, 100_000)])
def test_operations_9_2_unrecorded_messages_do_not_wait_for_actions(
    start_server: StartServer, peers: Peers, tmp_path: Path, count: int, length: int
) -> None:
    """docs/operations.md: at most 1000 messages of an event wait, and 64 MiB. More are skipped, and the log says so;
    publishing goes on.
    """
    gate = tmp_path / "gate"
    wait = do("execute-system", Command=f"while [ ! -e {gate} ]; do sleep 0.1; done")
    events = [
        published("M", when("condition", Condition="'{{AMPS_DATA_LENGTH}}' = '5'"), wait),
        published("M", echo("length {{AMPS_DATA_LENGTH}}.")),
    ]
    server = start_server(instance_xml=f"<Actions>{''.join(events)}</Actions>")
    client, subscriber = peers.logged_on(server), peers.logged_on(server)
    subscriber.subscribe("M")
    client.publish("M", b"first")
    for _ in range(count // 100):
        client.publish_all("M", [b"x" * length] * 100)
        subscriber.receive_published(100)
    assert "publish-message" in server.log.wait_for("29-0006")[0].text
    gate.touch()
    server.log.wait_for("29-0001", "length 5.")

    def last_ran() -> bool:
        client.publish("M", b"last")  # the first ones may be skipped
        return bool(server.log.find("29-0001", "length 4."))

    wait_until(last_ran, PATIENCE_S, "no action for a later one")


def test_operations_9_2_a_services_process_that_stands_still_holds_nobody_up(
    start_server: StartServer, peers: Peers
) -> None:
    """docs/operations.md: 64 MiB are kept for it, and it goes on at the end."""
    server = start_server(instance_xml=f"<Actions>{published('M', told('ran'))}</Actions>")
    client, subscriber = peers.logged_on(server), peers.logged_on(server)
    subscriber.subscribe("M")
    (pid,) = server.pids("amps: services")
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(12):
            client.publish_all("M", [b"x" * 100_000] * 100)  # 10 MB
            subscriber.receive_published(100)
    finally:
        os.kill(pid, signal.SIGCONT)
    server.log.wait_for("29-0011")
    client.publish("M", b"last")
    wait_until(
        lambda: any("|last|" in text for text in echoed(server, "ran")), PATIENCE_S, "no action for the last one"
    )


def test_operations_9_2_no_action_runs_for_what_was_published_before(
    start_server: StartServer, peers: Peers
) -> None:
    """operations.md §9.2: neither after the death of the services process nor after a restart."""
    server = start_server(
        log_topics=("^L/",), instance_xml=f"<Actions>{published('L/a', told('ran'))}</Actions>"
    )
    client = peers.logged_on(server)
    client.publish_persisted("L/a", [b"1"], 1)
    wait_for_echoes(server, "ran", 1)
    (pid,) = server.pids("amps: services")
    server.kill_process(pid)
    server.wait_for_new_tree([pid])
    sequence = 1

    def another() -> bool:
        nonlocal sequence
        sequence += 1
        client.publish_persisted("L/a", [b"2"], sequence)
        return len(echoed(server, "ran")) >= 3

    wait_until(another, PATIENCE_S, "no actions after the death")
    server.restart()
    client = peers.logged_on(server)
    client.publish_persisted("L/a", [b"3"], 1)
    wait_until(lambda: "|3|" in echoed(server, "ran")[-1], PATIENCE_S, "no actions after the restart")
    bodies = [text.split("|")[1] for text in echoed(server, "ran")]
    assert bodies == ["1", *["2"] * (len(bodies) - 2), "3"]
