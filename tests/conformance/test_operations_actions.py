"""Actions of a running server: events, the steps they run, and actions after the death of a process (operations.md
§9).
"""

import datetime
import gzip
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.admin import get
from tests.support.held_syncs import HeldSyncs
from tests.support.patched_servers import patched
from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, do, echo, on, when

IMPATIENT = """
import amps.server.supervisor as supervisor
supervisor.SHUTDOWN_ACTIONS_S, supervisor.SERVICES_DRAIN_S = 2.0, 1.0
"""
"""Shorter timeouts, for servers whose services process does not end in time."""


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def actions(*made: str) -> str:
    return f"<Actions>{''.join(made)}</Actions>"


def publish(data: str, topic: str = "L/a") -> str:
    return do("publish-message", Topic=topic, MessageType="json", Data=data)


def echoed(server: ServerProcess) -> list[str]:
    return [record.text for record in server.log.find("29-0001")]


def wait_for_echo(server: ServerProcess, text: str, count: int = 1) -> None:
    wait_until(lambda: echoed(server).count(text) >= count, 20, lambda: f"echoed: {echoed(server)}")


def delivered(reader: RawClient, timeout_s: float | None = None) -> Message:
    """Return the next message of a subscription."""
    (message,) = reader.receive_published(1, timeout_s)
    return message


def send_signal(server: ServerProcess, number: int) -> None:
    assert server.process is not None
    server.process.send_signal(number)


# --- startup and shutdown ---------------------------------------------------------------------------------


def test_operations_9_2_startup_is_before_the_ready_line_and_shutdown_first(
    start_server: StartServer,
) -> None:
    """operations.md §9.2: last step of the startup, first of the shutdown; publishing works in both."""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(
            action(on("startup"), publish('{"n":1}'), echo("started")),
            action(on("shutdown"), publish('{"n":2}'), echo("stopping")),
        ),
    )
    server.restart(instance_xml="")
    ids = [record.id for record in server.log.records()]
    texts = [record.text for record in server.log.records()]
    assert texts.index("started") < ids.index("00-0015")
    assert ids.index("FF-0001") < texts.index("stopping") < ids.index("FF-0002")
    assert server.pids("amps: services") == []
    with Peers("reader") as peers:
        reader = peers.logged_on(server)
        reader.subscribe("L/a", bm="0")
        assert [json.loads(delivered(reader).body)["n"] for _ in range(2)] == [1, 2]


def test_operations_64_counters_begin_anew_after_a_restart(start_server: StartServer) -> None:
    """operations.md §13 64: 1, 2, 3, and 1 again after a restart."""
    count = do("increment-counter", Key="k", Value="N")
    server = start_server(instance_xml=actions(action(on("startup"), *[count, echo("{{N}}")] * 3)))
    server.restart()
    assert echoed(server) == ["1", "2", "3"] * 2


def test_a_shutdown_action_has_its_time_and_no_more(start_server: StartServer, tmp_path: Path) -> None:
    """A command that it began does not outlive the instance, either."""
    command = do("execute-system", Command="echo $$ &gt; pid; exec sleep 600")
    server = start_server(
        instance_xml=actions(action(on("shutdown"), command, echo("too late"))),
        environment=patched(tmp_path, IMPATIENT),
    )
    server.stop()
    assert server.log.find("FF-0005")
    assert echoed(server) == []
    pid = int((server.directory / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid), 20, "the command runs on")


def test_operations_9_3_the_shutdown_action(start_server: StartServer) -> None:
    """operations.md §9.3: the instance ends as after a signal, with exit code 0."""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(
            action(on("signal", Signal="SIGUSR1"), do("shutdown")), action(on("shutdown"), echo("bye"))
        ),
    )
    process = server.process
    assert process is not None
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 0
    assert echoed(server) == ["bye"]
    assert "shutdown requested by the action at" in server.log.find("FF-0001")[0].text
    server.kill_all()


# --- signals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGHUP", "SIGALRM"])
def test_operations_9_4_an_action_takes_the_place_of_the_default(
    start_server: StartServer, name: str
) -> None:
    """operations.md §9.4, §13 70: the signal runs the action, and has no other effect."""
    server = start_server(instance_xml=actions(action(on("signal", Signal=name), echo("got it"))))
    number = signal.Signals[name]
    send_signal(server, number)
    wait_for_echo(server, "got it")
    send_signal(server, number)
    wait_for_echo(server, "got it", 2)
    server.check_undisturbed()
    server.stop(signal.SIGINT if name != "SIGINT" else signal.SIGTERM)


def test_operations_70_default_signals_run_shutdown_actions(start_server: StartServer) -> None:
    """operations.md §13 70: SIGTERM, SIGINT, SIGHUP."""
    server = start_server(instance_xml=actions(action(on("shutdown"), echo("bye"))))
    for number, count in ((signal.SIGTERM, 1), (signal.SIGINT, 2), (signal.SIGHUP, 3)):
        server.stop(number)
        assert echoed(server) == ["bye"] * count
        if count < 3:
            server.start()


def test_a_signal_to_the_whole_group_is_one_event(start_server: StartServer) -> None:
    """A terminal sends it so: only the supervisor treats it as an event, and no other process dies of it."""
    server = start_server(instance_xml=actions(action(on("signal", Signal="SIGALRM"), echo("got it"))))
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGALRM)
    wait_for_echo(server, "got it")
    server.check_undisturbed()
    assert echoed(server) == ["got it"]


# --- schedules --------------------------------------------------------------------------------------------


def test_operations_63_an_interval(start_server: StartServer) -> None:
    """operations.md §13 63: about every interval from the start; no further step after a false `If` or a
    failed `Do`.
    """
    fail = do("execute-system", Command="exit 1")
    every = on("schedule", Every="500ms", Name="often")
    server = start_server(
        instance_xml=actions(
            action(every, echo("1"), when("condition", Condition="1 = 2"), echo("never")),
            action(every, echo("2"), fail, echo("never")),
        )
    )
    wait_for_echo(server, "2", 6)
    seen = echoed(server)
    assert "never" not in seen
    assert seen[:12] == ["1", "2"] * 6
    first, *_, last = (
        datetime.datetime.fromisoformat(record.timestamp) for record in server.log.find("29-0001", "2")[:6]
    )
    assert (last - first).total_seconds() > 1.5  # five intervals, if the first time was not late
    assert server.log.find("29-0003", "schedule often (500ms)")
    failed = server.log.wait_for("29-0002", count=2)
    assert {record.level for record in failed} == {"error"}


# --- messages ---------------------------------------------------------------------------------------------


def test_operations_65_publishing_needs_no_entitlement(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 65, §9.3: the step works although entitlement denies every user; there is no user."""
    server = start_server(
        log_topics=("^L/",),
        modules_xml="<Module><Name>s</Name><Library>libamps_simple_access_entitlement.so</Library></Module>",
        entitlement_xml="<Entitlement><Module>s</Module><Options><AllowedTopics>.*</AllowedTopics>"
        "<GrantedPermissions>read</GrantedPermissions></Options></Entitlement>",
        instance_xml=actions(
            action(on("signal", Signal="SIGUSR1"), publish('{"n":1}'), publish('{"n":2}', "M"))
        ),
    )
    recorded = peers.logged_on(server)
    recorded.subscribe("L/a")
    plain = peers.logged_on(server)
    plain.subscribe("M")
    send_signal(server, signal.SIGUSR1)
    assert delivered(recorded).body == b'{"n":1}'
    assert delivered(plain).body == b'{"n":2}'
    replay = peers.logged_on(server)
    replay.subscribe("L/a", bm="0")
    assert delivered(replay).body == b'{"n":1}'


def test_operations_9_3_a_publish_succeeds_when_it_is_durable(
    start_server: StartServer, tmp_path: Path
) -> None:
    """operations.md §9.3: a recorded message delays the next step until it is durable; an unrecorded one does not."""
    syncs = HeldSyncs(tmp_path / "syncs")
    server = start_server(
        log_topics=("^L/",),
        environment=syncs.environment,
        instance_xml=actions(
            action(on("signal", Signal="SIGUSR1"), publish("{}", "L/a"), echo("durable")),
            action(on("signal", Signal="SIGUSR2"), publish("{}", "M"), echo("taken")),
        ),
    )
    with syncs.held():
        send_signal(server, signal.SIGUSR1)
        server.log.wait_for("29-0003", "signal SIGUSR1")
        send_signal(server, signal.SIGUSR2)
        wait_for_echo(server, "taken")
        time.sleep(0.3)
        assert echoed(server) == ["taken"]
    wait_for_echo(server, "durable")


def test_messages_of_clients_do_not_wake_the_services(start_server: StartServer, peers: Peers) -> None:
    """The services process is woken only while it waits for a result of its own."""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(action(on("signal", Signal="SIGUSR1"), publish("{}"), echo("done"))),
    )
    send_signal(server, signal.SIGUSR1)
    wait_for_echo(server, "done")
    (pid,) = server.pids("amps: services")
    process = psutil.Process(pid)
    client = peers.logged_on(server)
    before = process.num_ctx_switches().voluntary
    for number in range(1, 1001):
        client.publish("L/a", b"{}", s=number)
        client.flush()
    assert process.num_ctx_switches().voluntary - before < 500


def test_a_message_larger_than_the_ring_is_published(start_server: StartServer, peers: Peers) -> None:
    """The message is larger than the ring accepts. Its bytes do not change."""
    doubling = [do("translate-data", Data="{{D}}{{D}}", Value="D", Default="{{D}}{{D}}") for _ in range(22)]
    first = do("translate-data", Data="x", Value="D", Default="{{AMPS_BYTE_FE}}x")
    xml = action(on("signal", Signal="SIGUSR1"), first, *doubling, publish("{{D}}"), publish('{"end":1}'))
    server = start_server(log_topics=("^L/",), instance_xml=actions(xml))
    reader = peers.logged_on(server)
    reader.subscribe("L/a")
    send_signal(server, signal.SIGUSR1)
    assert delivered(reader, 60.0).body == b"\xfex" * 2**22
    assert delivered(reader).body == b'{"end":1}'


def test_a_topic_of_the_server_is_refused(start_server: StartServer) -> None:
    server = start_server(
        instance_xml=actions(action(on("startup"), publish("{}", "/AMPS/ClientStatus"), echo("never")))
    )
    (record,) = server.log.find("29-0002")
    assert "is refused: invalid topic" in record.text
    assert record.level == "error"
    assert echoed(server) == []


def test_a_client_cannot_take_the_place_of_the_internal_one(start_server: StartServer, peers: Peers) -> None:
    """No name that a client may have can displace the internal client, either."""
    server = start_server(
        name="T",
        log_topics=("^L/",),
        instance_xml=actions(action(on("signal", Signal="SIGUSR1"), publish("{}"), echo("done"))),
    )
    peers.logged_on(server, name="T actions")
    refused = peers.open(server).try_logon("amps-server: T actions")
    assert (refused.failed, refused.reason) == (True, "auth failure")
    send_signal(server, signal.SIGUSR1)
    wait_for_echo(server, "done")


def test_many_messages_of_actions_and_clients(start_server: StartServer, peers: Peers) -> None:
    """The internal publisher is one of many. No message is lost, and each publisher's messages keep their order."""
    raising = do("execute-event", Event="e")
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(
            action(on("signal", Signal="SIGUSR1"), *[raising] * 200),
            action(
                on("execute-event", Event="e"),
                do("increment-counter", Key="k", Value="N"),
                publish('{"action":{{N}}}'),
            ),
        ),
    )
    reader = peers.logged_on(server)
    reader.subscribe("L/a")
    writer = peers.logged_on(server)
    send_signal(server, signal.SIGUSR1)
    for number in range(1, 201):
        writer.publish("L/a", b'{"client":%d}' % number, s=number)
    found: dict[str, list[int]] = {"action": [], "client": []}
    for _ in range(400):
        ((kind, number),) = json.loads(delivered(reader, 30.0).body).items()
        found[kind].append(number)
    assert found == {kind: list(range(1, 201)) for kind in found}


# --- by path ----------------------------------------------------------------------------------------------


def test_operations_68_an_action_by_path(start_server: StartServer, port: int) -> None:
    """operations.md §13 68, transaction_log.md §22 60"""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=f"<Admin><InetAddr>{port}</InetAddr></Admin>"
        + actions(
            action(on("admin", Path="arch", RequiredParameter="AGE"), do("remove-journal", Age="{{AGE}}")),
            action(on("admin", Path="say", RequiredParameter="AGE"), echo("[{{AGE}}]")),
        ),
    )
    path = "/amps/administrator/actions"
    assert get(port, f"{path}/say").status == 400
    assert get(port, f"{path}/say?age=1d").status == 400
    assert get(port, f"{path}/say?AGE=1d").status == 200
    wait_for_echo(server, "[1d]")
    assert echoed(server) == ["[1d]"]
    failed = get(port, f"{path}/arch?AGE=LastThursday")
    assert failed.status == 500
    (record,) = server.log.wait_for("29-0002", "LastThursday")
    assert record.level == "error"
    # Of refusals with the same status, only the first is logged at once.
    assert len(server.log.find("19-0002")) == 2


# --- files and the log ------------------------------------------------------------------------------------


def test_operations_69_files(start_server: StartServer) -> None:
    """operations.md §13 69, transaction_log.md §22 61: journals stay, and the log says so; of other files the newest
    stay.
    """
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(
            action(on("signal", Signal="SIGUSR1"), do("remove-files", Age="0s", Pattern="journal/*.journal")),
            action(
                on("signal", Signal="SIGUSR2"),
                do("compress-files", Age="1h", Pattern="old/*.log"),
                do("remove-files", Age="1h", Pattern="old/*.txt", Keep="2"),
                echo("done"),
            ),
        ),
    )
    journals = server.journals()
    old = server.directory / "old"
    old.mkdir()
    for number in range(5):
        for name in (f"{number}.log", f"{number}.txt"):
            (old / name).write_text(name * 1000)
            then_s = time.time() - 7200 + number
            os.utime(old / name, (then_s, then_s))
    send_signal(server, signal.SIGUSR1)
    (record,) = server.log.wait_for("29-0002", "belongs to a transaction log")
    assert record.level == "error"
    assert server.journals() == journals
    send_signal(server, signal.SIGUSR2)
    wait_for_echo(server, "done")
    left = sorted(path.name for path in old.iterdir())
    assert left == ["0.log.gz", "1.log.gz", "2.log.gz", "3.log.gz", "3.txt", "4.log.gz", "4.txt"]
    assert gzip.decompress((old / "0.log.gz").read_bytes()) == b"0.log" * 1000


def test_operations_9_3_rotate_logs(make_server: StartServer, tmp_path: Path) -> None:
    """operations.md §9.3: targets that rotate begin their next file; the others continue their file."""
    logs = tmp_path / "logs"
    targets = (
        f"<Target><Protocol>file</Protocol><FileName>{logs}/r-%n.log</FileName><RotationThreshold>1G</RotationThreshold>"
        f"<Level>info</Level></Target><Target><Protocol>file</Protocol><FileName>{logs}/plain.log</FileName>"
        "<Level>info</Level></Target><Target><Protocol>stdout</Protocol><Level>info</Level></Target>"
    )
    xml = action(on("startup"), echo("before"), do("rotate-logs"), echo("after"))
    server = make_server(
        config_xml=f"<AMPSConfig><Name>T</Name>{actions(xml)}<Logging>{targets}</Logging></AMPSConfig>"
    )
    server.start()
    server.stop()
    assert sorted(path.name for path in logs.iterdir()) == ["plain.log", "r-00000.log", "r-00001.log"]
    assert "before" in (logs / "r-00000.log").read_text()
    assert "29-0001 after" not in (logs / "r-00000.log").read_text()
    assert "29-0001 after" in (logs / "r-00001.log").read_text()
    assert "29-0001 after" in (logs / "plain.log").read_text()


def test_a_command_inherits_neither_signal_settings_nor_descriptors(start_server: StartServer) -> None:
    """A signal can end it, and it inherits no descriptor of the server."""
    command = "kill -TERM $$"
    server = start_server(
        instance_xml=actions(
            action(on("startup"), do("execute-system", Command=command)),
            action(on("startup"), do("execute-system", Command="ls -l /proc/self/fd &gt; fds")),
        )
    )
    assert "ended with signal 15" in server.log.find("29-0002")[0].text
    descriptors = (server.directory / "fds").read_text()
    assert "socket:" not in descriptors
    assert "eventfd" not in descriptors


# --- death ------------------------------------------------------------------------------------------------


def test_the_services_process_is_replaced(start_server: StartServer, peers: Peers, port: int) -> None:
    """Messages flow meanwhile. The new process publishes and serves, and does not run the startup actions again."""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=f"<Admin><InetAddr>{port}</InetAddr></Admin>"
        + actions(
            action(on("startup"), echo("started")),
            action(on("signal", Signal="SIGUSR1"), publish("{}"), echo("published")),
        ),
    )
    client = peers.logged_on(server)
    for round_number in range(1, 4):
        (old,) = server.pids("amps: services")
        send_signal(server, signal.SIGUSR1)
        wait_for_echo(server, "published", round_number)
        server.kill_process(old)
        client.publish("L/b", b"{}", s=round_number, a="persisted")
        client.wait_for_persisted(round_number)
        wait_until(lambda old=old: server.pids("amps: services") not in ([], [old]), 20, "not replaced")
        wait_until(lambda: is_served(port), 20, "not served")
    assert echoed(server).count("started") == 1


def is_served(port: int) -> bool:
    try:
        return get(port, "/amps/instance/name").status == 200
    except OSError:
        return False


def test_the_core_dies_and_actions_go_on(start_server: StartServer, peers: Peers) -> None:
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(
            action(on("startup"), echo("started")),
            action(on("schedule", Every="300ms"), publish("{}"), echo("published")),
        ),
    )
    wait_for_echo(server, "published", 2)
    old = [*server.transport_pids(), *server.pids("amps: services"), server.core_pid()]
    server.kill_core()
    server.wait_for_new_tree(old)
    before = echoed(server).count("published")
    wait_for_echo(server, "published", before + 3)
    assert echoed(server).count("started") == 1
    reader = peers.logged_on(server)
    reader.subscribe("L/a", bm="0")
    for _ in range(before):
        delivered(reader)


def test_no_process_is_left_when_the_supervisor_dies(start_server: StartServer) -> None:
    server = start_server(instance_xml=actions(action(on("schedule", Every="100ms"), echo("x"))))
    children = [psutil.Process(pid) for pid in server.pids()]
    assert server.process is not None
    server.kill_process(server.process.pid)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    server.kill_all()


def test_a_services_process_that_stands_still_holds_up_no_stop(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """It delays no message, either. In the end it is killed, and the log says so."""
    server = start_server(
        log_topics=("^L/",),
        instance_xml=actions(action(on("shutdown"), echo("never"))),
        environment=patched(tmp_path, IMPATIENT),
    )
    (pid,) = server.pids("amps: services")
    os.kill(pid, signal.SIGSTOP)
    client = peers.logged_on(server)
    client.publish("L/a", b"{}", s=1, a="persisted")
    client.wait_for_persisted(1)
    server.stop()
    assert server.log.find("FF-0005")
    assert server.log.find("FF-0004", "services")
    assert echoed(server) == []
