"""The server as a process: signals, exit codes, background, service manager.

These are operations.md §1.6, §1.9, §9.4, §10 and the behaviour 70 of §13.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.peers import Peers
from tests.support.server import StartServer, Transport, package_path, wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_operations_70_shutdown_by_signal(
    start_server: StartServer, peers: Peers, number: signal.Signals
) -> None:
    """operations.md §13 70, §1.9"""
    server = start_server(log_topics=("^L/",))
    client = peers.logged_on(server)
    client.publish("L/a", b"1", s=1, a="persisted")
    client.wait_for_persisted(1)
    process = server.process
    assert process is not None
    children = [psutil.Process(pid) for pid in server.pids()]
    process.send_signal(number)
    assert process.wait(30) == 0
    assert not psutil.wait_procs(children, timeout=10)[1]
    client.wait_for_close()
    last = server.log.records()[-1]
    assert last.id.startswith("FF-")
    server.kill_all()


def test_operations_70_a_terminal_interrupts_the_whole_group(start_server: StartServer) -> None:
    """Ctrl-C reaches every process of the group at once; the shutdown is the same."""
    server = start_server(log_topics=("^L/",))
    process = server.process
    assert process is not None
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 0
    assert server.log.records()[-1].id.startswith("FF-")
    server.kill_all()


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE])
def test_operations_70_signals_that_end_nothing(
    start_server: StartServer, peers: Peers, number: signal.Signals
) -> None:
    """operations.md §13 70: after SIGQUIT the server goes on; also when a terminal sends it to the whole group."""
    server = start_server(log_topics=("^L/",))
    client = peers.logged_on(server)
    assert server.process is not None
    os.killpg(server.process.pid, number)
    client.publish("L/a", b"1", s=1, a="persisted")
    client.wait_for_persisted(1)
    peers.logged_on(server)
    server.check_undisturbed()


def test_operations_70_a_second_signal_does_no_harm(start_server: StartServer) -> None:
    """operations.md §13 70: nor does any later one, up to the very end of the process."""
    server = start_server(log_topics=("^L/",))
    process = server.process
    assert process is not None
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.wait(1) == 0
    server.kill_all()


@pytest.mark.parametrize("delay_s", [0.3, 0.7])
def test_operations_70_shutdown_before_the_server_is_ready(make_server: StartServer, delay_s: float) -> None:
    """A signal while large journals are being made ends the start in order."""
    server = make_server(log_topics=("^L/",), journal_size="400MB")
    process = server.launch()
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    # Before the supervisor has installed its handler, the signal ends the process at once.
    assert process.wait(60) in (0, -signal.SIGTERM), server.output()
    assert "Traceback" not in server.output()
    server.kill_all()


def test_operations_1_9_killed_by_a_signal(start_server: StartServer) -> None:
    """operations.md §1.9: 128+N as a shell shows it."""
    server = start_server()
    process = server.process
    assert process is not None
    children = [psutil.Process(pid) for pid in server.pids()]
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    # Without their supervisor the other processes end by themselves.
    assert not psutil.wait_procs(children, timeout=15)[1]
    server.kill_all()


def daemon(config: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "amps.server.main", "--daemon", str(config)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_operations_1_6_daemon(make_server: StartServer, tmp_path: Path, peers: Peers) -> None:
    """operations.md §1.6: the command returns when the server is ready; relative paths keep their meaning."""
    server = make_server()
    xml = server.config_xml().replace(
        "</Logging>",
        "<Target><Protocol>file</Protocol><Level>info</Level><FileName>d.log</FileName></Target></Logging>",
    )
    config = tmp_path / "c.xml"
    config.write_text(xml)
    started = daemon(config, tmp_path)
    assert started.returncode == 0, started.stderr
    pid_text = re.search(r"pid (\d+)", started.stdout)
    assert pid_text is not None
    process = psutil.Process(int(pid_text[1]))
    try:
        peers.logged_on(server)
        assert process.terminal() is None
        assert os.getsid(process.pid) != os.getsid(0)
        assert "00-0015" in (tmp_path / "d.log").read_text()
        second = daemon(config, tmp_path)
        assert second.returncode == 1
    finally:
        process.terminate()
        process.wait(30)
    assert "FF-" in (tmp_path / "d.log").read_text().splitlines()[-1]


def test_operations_1_6_daemon_with_a_bad_configuration(tmp_path: Path) -> None:
    """operations.md §1.9"""
    config = tmp_path / "c.xml"
    config.write_text("<AMPSConfig/>")
    refused = daemon(config, tmp_path)
    assert refused.returncode == 1
    assert "AMPSConfig/Name" in refused.stderr


def test_operations_10_service_manager(make_server: StartServer, tmp_path: Path) -> None:
    """operations.md §10: readiness, watchdog and stopping are reported as the unit file expects."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(30)
        server = make_server(environment={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"})
        server.start()
        received = [manager.recv(4096).decode()]
        while not any("WATCHDOG=1" in text for text in received):
            received.append(manager.recv(4096).decode())
        assert any("READY=1" in text for text in received)
        server.stop()
        while not any("STOPPING=1" in text for text in received):
            received.append(manager.recv(4096).decode())


def test_operations_2_process_titles(start_server: StartServer) -> None:
    """Each title names the task of the process; `ProcessName` renames the first."""
    server = start_server(instance_xml="<ProcessName>desk-7</ProcessName>", transport_workers=2)
    titles = sorted(" ".join(psutil.Process(pid).cmdline()).strip() for pid in server.pids())
    assert [title for title in titles if title.startswith("amps: transport")] == [
        "amps: transport 0",
        "amps: transport 1",
    ]
    assert "amps: core" in titles
    assert "amps: log" in titles
    assert server.process is not None
    supervisor = psutil.Process(server.process.pid)
    wait_until(lambda: "desk-7" in " ".join(supervisor.cmdline()), 5, lambda: str(supervisor.cmdline()))


@pytest.mark.parametrize("replaced", [False, True])
def test_operations_17_a_socket_file_is_removed_by_its_server_only(
    start_server: StartServer, tmp_path: Path, replaced: bool
) -> None:
    """operations.md §13 17; a file of another program in its place is not removed."""
    path = tmp_path / "s.sock"
    server = start_server(transports=(Transport("unix", type="amps-unix", socket_path=path),))
    with socket.socket(socket.AF_UNIX) as other:
        if replaced:
            path.rename(tmp_path / "taken away")
            other.bind(str(path))
        server.stop()
    assert path.exists() == replaced


def test_operations_12_a_port_in_use(make_server: StartServer) -> None:
    """operations.md §13 12: the address and the remedy, on standard error and in the log."""
    server = make_server()
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        occupant.bind(("127.0.0.1", server.port()))
        occupant.listen()
        server.start_refused()
    text = f"127.0.0.1:{server.port()}: Address already in use"
    errors = (server.directory / "stderr.log").read_text()
    assert errors.startswith("Error: transport json cannot listen on")
    for said in (errors, server.log.find("00-0009")[0].text):
        assert text in said
        assert "choose another address" in said
