"""`Worker` against a scripted server: topics that are no queue, silence, and child processes (client.md §6, §9.6).

`tests/conformance/test_client_workers.py` has the tests with real servers.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.client import Message, UsageException, Worker
from amps.client.workers import runner as runner_module
from amps.client.workers.runner import Runner
from tests.support.server import package_path, wait_until
from tests.unit.client.peer import Connection, Frame, ScriptedPeer

TIMEOUT_S = 20.0
LEASED = {"bm": "1|1|", "lp": "20991231T000000Z"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server that is silent may delay the end: `drain_timeout` is 0.2 s here."""
    monkeypatch.setattr(runner_module, "END_S", 1000.0)
    monkeypatch.setattr(runner_module, "LAST_S", 0.2)


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    scripted = ScriptedPeer()
    scripted.listener.settimeout(TIMEOUT_S)
    yield scripted
    scripted.close()


class Running(threading.Thread):
    """`run` of a worker in a thread, and how it ended."""

    def __init__(self, worker: Worker | Runner) -> None:
        super().__init__(daemon=True)
        self.worker = worker
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def worker(peer: ScriptedPeer, handler: Callable[[Message], Any] = lambda message: None, **settings: Any) -> Worker:
    return Worker(peer.uri, "Q", handler, **{"heartbeat": None, "drain_timeout": 0.2, **settings})


def subscribed(peer: ScriptedPeer, *, is_queue: bool = True) -> tuple[Connection, Frame]:
    """Let a worker in, and let it subscribe."""
    connection = peer.accept()
    connection.logon()
    frame = connection.expect("subscribe")
    connection.ack(frame, t="Q", **({"o": "max_backlog=10"} if is_queue else {}))
    return connection, frame


def test_client_worker_refuses_a_topic_that_is_no_queue(peer: ScriptedPeer) -> None:
    """The acknowledgement of a subscription to a queue has the effective backlog; client.md §6."""
    running = Running(worker(peer))
    subscribed(peer, is_queue=False)
    running.end()
    assert isinstance(running.error, UsageException)
    assert str(running.error).startswith("'Q' is no queue")


def test_client_worker_refuses_messages_that_are_no_leases(peer: ScriptedPeer) -> None:
    """An expression may also match other topics: without bookmarks, their messages could not be told apart."""
    handled: list[bytes] = []
    running = Running(worker(peer, lambda message: handled.append(message.data)))
    connection, frame = subscribed(peer)
    connection.publish(frame["sub_id"], b"leased", topic="Q", **LEASED)
    wait_until(lambda: handled == [b"leased"], TIMEOUT_S, lambda: repr(handled))
    connection.publish(frame["sub_id"], b"plain", topic="P")
    running.end()
    assert isinstance(running.error, UsageException)
    assert str(running.error).startswith("'P' is no queue")
    assert handled == [b"leased"]


def test_client_worker_notices_a_server_that_stops_answering(peer: ScriptedPeer) -> None:
    """client.md §9.6. The counters show whether the worker is connected."""
    running = Running(worker(peer, heartbeat=0.3))
    assert running.worker.stats.connected == 0
    connection = peer.accept()
    connection.logon()
    connection.expect("heartbeat")
    connection.ack(connection.expect("subscribe"), o="max_backlog=10")
    wait_until(lambda: running.worker.stats.connected == 1, TIMEOUT_S, "not connected")
    wait_until(lambda: running.worker.stats.connected == 0, TIMEOUT_S, "not lost")
    peer.accept().expect("logon")
    running.worker.stop()
    running.end()
    assert running.error is None


def test_client_worker_has_heartbeats_by_default(peer: ScriptedPeer) -> None:
    """client.md §9.6."""
    running = Running(Worker(peer.uri, "Q", print, drain_timeout=0.2))
    connection = peer.accept()
    connection.logon()
    assert connection.expect("heartbeat")["o"] == "start,10"
    running.worker.stop()
    running.end()


def test_client_worker_ends_in_time_although_the_server_does_not_answer(
    peer: ScriptedPeer,
) -> None:
    handled = threading.Event()
    running = Running(worker(peer, lambda message: handled.set(), ack_timeout=0))
    connection, frame = subscribed(peer)
    connection.publish(frame["sub_id"], topic="Q", **LEASED)
    assert handled.wait(TIMEOUT_S)
    running.worker.stop()
    running.end()
    assert running.error is None
    assert [connection.expect()["c"] for _ in range(2)].count("sow_delete") == 1


def test_client_worker_ends_at_the_second_signal_although_the_server_does_not_answer(peer: ScriptedPeer) -> None:
    settings = worker(peer, drain_timeout=1000)._settings
    running = Running(Runner(settings))
    connection, _ = subscribed(peer)
    assert isinstance(running.worker, Runner)
    running.worker.stop()
    while connection.expect()["c"] != "flush":
        pass
    running.worker.stop()
    running.end()
    assert running.error is None


def test_client_worker_tells_what_cannot_be_sent_to_a_process(peer: ScriptedPeer) -> None:
    with pytest.raises(UsageException, match="at the top level of a module"):
        worker(peer, lambda message: None, processes=2).run()


def program(tmp_path: Path, text: str, *arguments: str) -> "subprocess.Popen[bytes]":
    script = tmp_path / "program.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, "-P", str(script), *arguments], env={"PYTHONPATH": package_path()}, stderr=subprocess.PIPE
    )


def test_client_worker_tells_that_the_guard_is_missing(tmp_path: Path) -> None:
    process = program(
        tmp_path,
        "from amps.client import Worker\nWorker('tcp://127.0.0.1:1/amps/json', 'Q', print, processes=2).run()\n",
    )
    try:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 1
    assert b'the program needs the guard `if __name__ == "__main__":`' in errors.splitlines()[-1]


def test_client_worker_with_processes_refuses_a_topic_that_is_no_queue(peer: ScriptedPeer, tmp_path: Path) -> None:
    process = program(
        tmp_path,
        "import sys\nfrom amps.client import Worker\n"
        "if __name__ == '__main__':\n    Worker(sys.argv[1], 'Q', print, processes=1, heartbeat=None).run()\n",
        peer.uri,
    )
    try:
        subscribed(peer, is_queue=False)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 1
    assert b"'Q' is no queue" in errors.splitlines()[-1]
