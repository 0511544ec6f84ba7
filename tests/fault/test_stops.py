"""Failures while an instance stops.

The exit status, the log and the service manager report them, and no acknowledged message is lost.
"""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.load import replay
from tests.support.failing_device import FailingDevice
from tests.support.held_syncs import HeldSyncs
from tests.support.patched_servers import patched
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, amps_server, numbered_bodies

NOT_DURABLE, PROCESS_DIED = 74, 70
STOP_S = 40


@pytest.fixture
def device(tmp_path: Path) -> FailingDevice:
    directory = tmp_path / "device"
    directory.mkdir()
    return FailingDevice(directory)


@pytest.fixture(scope="module")
def syncs(tmp_path_factory: pytest.TempPathFactory) -> HeldSyncs:
    return HeldSyncs(tmp_path_factory.mktemp("held-syncs"))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager, which receives the server's notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        yield listening


def publish_acknowledged(server: ServerProcess, peers: Peers) -> RawClient:
    client = peers.logged_on(server)
    client.publish_persisted("t1", numbered_bodies(10), 1)
    return client


def publish_another(client: RawClient) -> None:
    """Publish a message that the server has received, without waiting for a sync."""
    client.publish("t1", b'{"n":11}', s=11)
    client.flush("processed")


def terminate(server: ServerProcess) -> None:
    server.expect_disturbance()
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)


def ended_with(server: ServerProcess) -> int:
    """Return the exit status. No process is left."""
    assert server.process is not None
    code = server.process.wait(STOP_S)
    assert server.log.records()[-1].id.startswith("FF-")
    server.kill_all()
    return code


def check_acknowledged(server: ServerProcess) -> None:
    """Check that the acknowledged messages are there at the next start."""
    server.start()
    assert [body for _, body in replay(server, "t1")][:10] == numbered_bodies(10)


def test_fault_a_stop_whose_last_sync_fails_is_no_success(
    device: FailingDevice, start_server: StartServer, peers: Peers, manager: socket.socket, tmp_path: Path
) -> None:
    """transaction_log.md §20, 35: exit status and notification must not suggest that the log is complete."""
    server = start_server(
        log_topics=("t1",),
        flush_interval="1000ms",
        environment={**device.environment, "NOTIFY_SOCKET": str(tmp_path / "notify")},
    )
    client = publish_acknowledged(server, peers)
    told = ""
    with device.failing("fdatasync"):
        publish_another(client)
        terminate(server)
        assert ended_with(server) == NOT_DURABLE
    (record,) = server.log.find("FF-0006")
    assert record.level == "critical"
    assert "Input/output error" in record.text
    assert "exit status 74" in record.text
    assert "the transaction log was not made durable" in server.output()
    while "STATUS=the transaction log was not made durable" not in told:
        told = manager.recv(4096).decode()
    check_acknowledged(server)


def test_fault_a_core_that_dies_in_a_stop_is_no_success(
    syncs: HeldSyncs, start_server: StartServer, peers: Peers
) -> None:
    """It is unknown how much of its data the core has written."""
    server = start_server(log_topics=("t1",), flush_interval="1000ms", environment=syncs.environment)
    client = publish_acknowledged(server, peers)
    core = server.core_pid()
    with syncs.held():
        publish_another(client)
        terminate(server)
        server.log.wait_for("FF-0002", timeout_s=30)
        os.kill(core, signal.SIGKILL)
        assert ended_with(server) == NOT_DURABLE
    assert "signal Killed" in server.log.find("FF-0006")[0].text
    check_acknowledged(server)


def test_fault_a_core_that_does_not_end_in_a_stop_is_no_success(
    syncs: HeldSyncs, start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """Its device is too slow for the time limit of a stop."""
    server = start_server(
        log_topics=("t1",),
        flush_interval="1000ms",
        environment={
            **syncs.environment,
            **patched(tmp_path, "import amps.server.supervisor as s\ns.CORE_DRAIN_S = 0.5"),
        },
    )
    client = publish_acknowledged(server, peers)
    with syncs.held():
        publish_another(client)
        terminate(server)
        assert ended_with(server) == NOT_DURABLE
    assert server.log.find("FF-0004", "core")
    assert "did not end within" in server.log.find("FF-0006")[0].text
    check_acknowledged(server)


def test_fault_a_transport_that_dies_in_a_stop_is_reported(
    syncs: HeldSyncs, start_server: StartServer, peers: Peers
) -> None:
    """The core still makes its data durable: that is another exit status."""
    server = start_server(
        log_topics=("t1",), flush_interval="1000ms", environment=syncs.environment, transport_workers=1
    )
    client = publish_acknowledged(server, peers)
    (transport,) = server.transport_pids()
    with syncs.held():
        publish_another(client)
        terminate(server)
        server.log.wait_for("FF-0001")
        os.kill(transport, signal.SIGKILL)
        server.log.wait_for("FF-0007", "transport 0", "signal Killed")
    assert ended_with(server) == PROCESS_DIED
    assert not server.log.find("FF-0006")
    check_acknowledged(server)


def test_fault_a_core_without_a_log_that_dies_in_a_stop_is_reported(start_server: StartServer) -> None:
    """It had no data to make durable."""
    server = start_server()
    core = server.core_pid()
    os.kill(core, signal.SIGSTOP)
    terminate(server)
    server.log.wait_for("FF-0001")
    os.kill(core, signal.SIGKILL)
    assert ended_with(server) == PROCESS_DIED
    assert server.log.find("FF-0007", "core")
    assert not server.log.find("FF-0006")


def test_fault_a_copy_of_queues_that_cannot_be_written_is_a_success(
    start_server: StartServer, peers: Peers
) -> None:
    """The next start rebuilds the queues from the log: nothing is lost."""
    server = start_server(
        log_topics=("t1",),
        instance_xml="<SOW><Queue><Name>Q</Name><MessageType>json</MessageType><UnderlyingTopic>t1"
        "</UnderlyingTopic></Queue></SOW>",
    )
    publish_acknowledged(server, peers)
    for suffix in ("", ".new"):
        (server.journal_directory / f"Test.queue.cache{suffix}").mkdir()
    terminate(server)
    assert ended_with(server) == 0
    assert server.log.find("31-0004", "the next start reads more of the log")
    for suffix in ("", ".new"):
        (server.journal_directory / f"Test.queue.cache{suffix}").rmdir()
    server.start()
    server.log.wait_for("31-0001", "10 messages in queues")


def test_fault_the_help_lists_the_exit_statuses() -> None:
    """operations.md §1.9: scripts and units rely on them."""
    shown = amps_server("--help").stdout
    for status in ("0 ", "1 ", "70 ", "74 "):
        assert f"\n  {status}" in shown
