"""Storage that goes away under a running server and comes back.

A failing device, an unmounted file system, removed files. The server stays up, reports the fault, and loses no
acknowledged message.
"""

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.fault.load import Publisher, Subscriber, check_everything, replay, running, wait_for_all
from tests.support.failing_device import FailingDevice
from tests.support.mounts import mount, unmount
from tests.support.peer import PeerError
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until


@pytest.fixture
def device(tmp_path: Path) -> FailingDevice:
    directory = tmp_path / "device"
    directory.mkdir()
    return FailingDevice(directory)


def crowd(server: ServerProcess, *, largest_bytes: int = 4000) -> tuple[list[Publisher], list[Subscriber]]:
    publishers = [
        Publisher(server, f"publisher-{n}", f"load/{n}", n, largest_bytes=largest_bytes) for n in range(2)
    ]
    return publishers, [Subscriber(server, "subscriber", "load/.*")]


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_fault_a_failing_device_ends_nothing_but_the_service(
    device: FailingDevice, start_server: StartServer, call: str
) -> None:
    """All clients are refused while it fails; afterwards all acknowledged messages are there."""
    server = start_server(log_topics=("^load/",), environment=device.environment)
    publishers, subscribers = crowd(server)
    old = server.pids("amps: core") + server.transport_pids()
    with running([*publishers, *subscribers]):
        for publisher in publishers:
            publisher.wait_for_progress(100)
        server.expect_disturbance()
        with device.failing(call):
            told = server.log.wait_for("01-0007", timeout_s=20, count=2)[0]
            assert "Input/output error" in told.text
            assert server.log.find("1D-0003")[0].level == "critical"
            with pytest.raises((PeerError, OSError)), Peers("turned") as peers:
                peers.logged_on(server)
        server.log.wait_for("01-0008", timeout_s=60)
        server.wait_for_new_tree(old)
        wait_for_all(publishers, subscribers)
    assert server.process is not None
    assert server.process.poll() is None
    check_everything(replay(server, "load/.*"), publishers, subscribers)


def test_fault_a_stop_while_the_storage_is_away_ends_in_order(
    device: FailingDevice, start_server: StartServer, peers: Peers
) -> None:
    """The exit status says that the log may lack unacknowledged messages."""
    server = start_server(log_topics=("t1",), environment=device.environment)
    client = peers.logged_on(server)
    client.publish_persisted("t1", numbered_bodies(10), 1)
    server.expect_disturbance()
    with device.failing("fdatasync"):
        client.publish("t1", b"lost", s=11, a="persisted")
        server.log.wait_for("01-0007")
        server.stop(expected=74)
    assert "Input/output error" in server.log.find("FF-0006")[0].text
    server.start()
    assert [body for _, body in replay(server, "t1")][:10] == numbered_bodies(10)


def test_fault_journals_that_vanish_with_their_device_are_waited_for(
    device: FailingDevice, start_server: StartServer, tmp_path: Path
) -> None:
    """An empty directory in the place of the log must not make a running server begin a new log."""
    server = start_server(log_topics=("^load/",), environment=device.environment)
    publishers, subscribers = crowd(server)
    away = tmp_path / "away"
    away.mkdir()
    with running([*publishers, *subscribers]):
        for publisher in publishers:
            publisher.wait_for_progress(100)
        server.expect_disturbance()
        with device.failing("fdatasync"):
            server.log.wait_for("01-0007", timeout_s=20)
            for path in list(server.journal_directory.iterdir()):
                path.rename(away / path.name)
        server.log.wait_for("01-0007", "there are no journals in", "any more; put them back", timeout_s=20)
        assert not server.journals()
        for path in list(away.iterdir()):
            path.rename(server.journal_directory / path.name)
        server.log.wait_for("01-0008", timeout_s=60)
        wait_for_all(publishers, subscribers)
    check_everything(replay(server, "load/.*"), publishers, subscribers)


def test_fault_a_file_system_that_is_unmounted_and_mounted_again(
    tmp_path: Path, start_server: StartServer
) -> None:
    """The journal in use stays open; no new one is made in the mount point, where it would be missing later."""
    real = tmp_path / "device"
    real.mkdir()
    mounted = tmp_path / "server-0" / "journal"
    mounted.mkdir(parents=True)
    mount("--bind", real, mounted)
    try:
        server = start_server(log_topics=("^load/",))
        publishers, subscribers = crowd(server, largest_bytes=20_000)
        for publisher in publishers:
            publisher.may_be_refused = True
        with running([*publishers, *subscribers]):
            for publisher in publishers:
                publisher.wait_for_progress(100)
            unmount(mounted)
            assert list(mounted.iterdir()) == []
            server.log.wait_for("1D-0017", str(mounted))
            server.log.wait_for("2C-0011", "put it back where it was, or mount its file system", timeout_s=60)
            assert list(mounted.iterdir()) == [], "something was written beside the log"
            mount("--bind", real, mounted)
            server.log.wait_for("2C-0012", timeout_s=20)
            server.log.wait_for("1D-0018", str(mounted))
            wait_for_all(publishers, subscribers)
        check_everything(replay(server, "load/.*"), publishers, subscribers)
        server.stop()
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            unmount(mounted)


def test_fault_a_removed_journal_in_use_is_restored(start_server: StartServer) -> None:
    """Several times under load, with a death after each: acknowledged messages are there."""
    server = start_server(log_topics=("^load/",))
    publishers, subscribers = crowd(server)
    with running([*publishers, *subscribers]):
        for round_ in range(3):
            for publisher in publishers:
                publisher.wait_for_progress(100)
            in_use = server.journals()[-2]
            in_use.unlink()
            server.log.wait_for("1D-0016", str(in_use))
            server.log.wait_for("1D-0018", str(in_use), count=1)
            assert in_use.stat().st_size == 10 << 20, round_
        server.check_undisturbed()
        core = server.core_pid()
        server.kill_core()
        server.wait_for_new_tree([core])
        wait_for_all(publishers, subscribers)
    check_everything(replay(server, "load/.*"), publishers, subscribers)


def test_fault_a_journal_removed_just_before_the_stop_is_restored(
    start_server: StartServer, peers: Peers
) -> None:
    server = start_server(log_topics=("t1",))
    peers.logged_on(server).publish_persisted("t1", numbered_bodies(10), 1)
    server.journals()[0].unlink()
    server.restart()
    assert [body for _, body in replay(server, "t1")] == numbered_bodies(10)


def test_fault_a_removed_older_journal_ends_replays_that_need_it_and_nothing_else(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """There is never a gap: a replay that reaches it is disconnected. Once the journal is back, it is read."""
    server = start_server(log_topics=("t1",))
    bodies = numbered_bodies(2500, padding_bytes=10_000)
    publisher = peers.logged_on(server)
    publisher.publish_persisted("t1", bodies, 1)
    live = peers.logged_on(server)
    live.subscribe("t1", "live")
    first = server.journals()[0]
    first.rename(tmp_path / first.name)
    server.log.wait_for("1D-0017", str(first))
    pids = server.transport_pids()
    for _ in range(6):  # more than the number of deaths of a worker that is allowed within a minute
        reader = peers.logged_on(server)
        reader.send({"c": "subscribe", "t": "t1", "bm": "0", "sub_id": "r"})
        assert [m for m in reader.wait_for_close() if m.command == "p"] == []
    assert server.transport_pids() == pids
    assert server.log.find("1D-0010", "the file is not there; put it back")
    publisher.publish_persisted("t1", [b"goes on"], 2501)
    assert live.receive().body == b"goes on"
    (tmp_path / first.name).rename(first)
    server.log.wait_for("1D-0018", str(first))
    assert [body for _, body in replay(server, "t1")] == [*bodies, b"goes on"]
    server.stop()


def test_fault_a_removed_lock_file_lets_no_second_server_in(
    start_server: StartServer, make_server: StartServer, peers: Peers
) -> None:
    """A second server would write into the same journals. This holds whether or not the first one has changed its
    journal since.
    """
    server = start_server(log_topics=("t1",))
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(1500, padding_bytes=10_000)
    publisher.publish_persisted("t1", bodies[:10], 1)
    ports = make_server(log_topics=("t1",))
    mine, theirs = (f"<JournalDirectory>{one.journal_directory}<" for one in (ports, server))
    second = make_server(config_xml=ports.config_xml().replace(mine, theirs))
    for count in (10, 1500):
        publisher.publish_persisted("t1", bodies[10:count], 11) if count > 10 else None
        (server.journal_directory / "Test.lock").unlink()
        said = second.start_refused()
        assert "another server uses" in said
        assert ".journal is held by" in said
    publisher.publish_persisted("t1", [b"goes on"], 1501)
    server.restart()
    assert [body for _, body in replay(server, "t1")] == [*bodies, b"goes on"]


def test_fault_removed_spares_are_made_again(start_server: StartServer, peers: Peers) -> None:
    server = start_server(
        log_topics=("t1",), journal_xml="<PreallocatedJournalFiles>3</PreallocatedJournalFiles>"
    )
    for spare in server.journals()[1:]:
        spare.unlink()
    bodies = numbered_bodies(3500, padding_bytes=10_000)
    peers.logged_on(server).publish_persisted("t1", bodies, 1)
    wait_until(lambda: len(server.journals()) >= 5, 10, "no journals")
    server.restart()
    assert [body for _, body in replay(server, "t1")] == bodies
