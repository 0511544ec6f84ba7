"""Receiving commands with scripted servers: Ctrl-C, silent servers, output that cannot be written, hostile texts."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amps.cli import receiving
from amps.cli.main import amps
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment
from tests.unit.client.peer import Connection, Frame, ScriptedPeer

SILENT = ("-heartbeat", "0")
LIMIT_S = 10.0
"""The source ends the connection after this time, so that a command that hangs fails otherwise than expected."""


@pytest.fixture
def source() -> Iterator[ScriptedPeer]:
    peer = ScriptedPeer()
    peer.listener.settimeout(TIMEOUT_S)
    yield peer
    peer.close()


@pytest.fixture
def second() -> Iterator[ScriptedPeer]:
    peer = ScriptedPeer()
    yield peer
    peer.close()


class Script(threading.Thread):
    """Plays a server in the background; `end` raises what went wrong there."""

    def __init__(self, play: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._play = play
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._play()
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


def let_in(peer: ScriptedPeer) -> Connection:
    connection = peer.accept()
    connection.logon()
    return connection


def subscribed(connection: Connection, *bodies: bytes, queue: bool = False) -> Frame:
    """Let a client subscribe, and send it messages; those of a queue have bookmarks 0|0|, 0|1|, …"""
    frame = connection.expect("subscribe")
    connection.ack(frame, **({"o": "max_backlog=10"} if queue else {}))
    for number, body in enumerate(bodies):
        connection.publish(frame["cid"], body, **({"bm": f"0|{number}|", "lp": "20991231T000000Z"} if queue else {}))
    return frame


def subscribe(peer: ScriptedPeer, *arguments: str) -> Result:
    """Run `amps subscribe` in this process."""
    where = ("subscribe", "-server", f"127.0.0.1:{peer.port}", "-topic", "t")
    return CliRunner().invoke(amps, [*where, *arguments], prog_name="amps")


def copy_to(peer: ScriptedPeer) -> tuple[str, str]:
    return "-copy", f"127.0.0.1:{peer.port}"


def test_a_second_server_that_stops_answering_fails_the_copy(
    source: ScriptedPeer, second: ScriptedPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed although no further message arrives."""
    monkeypatch.setattr(receiving, "COPY_TIMEOUT_S", 0.5)

    def play() -> None:
        connection, copied = let_in(source), let_in(second)
        subscribed(connection, b"one")
        copied.expect("publish")
        threading.Timer(LIMIT_S, connection.close).start()

    script = Script(play)
    done = subscribe(source, *SILENT, *copy_to(second))
    script.end()
    assert (done.exit_code, done.stdout) == (1, "one\n")
    assert "error: a copy is not persisted: the server acknowledged nothing for 0.5 s" in done.stderr


def test_a_copy_is_sent_again_although_no_further_message_arrives(
    source: ScriptedPeer, second: ScriptedPeer
) -> None:
    def play() -> None:
        connection, first = let_in(source), let_in(second)
        frame = subscribed(connection, b"one")
        threading.Timer(LIMIT_S, connection.close).start()
        first.expect("publish")
        first.close()
        again = let_in(second)
        resent = again.expect("publish")
        assert resent.body == b"one"
        again.send({"c": "ack", "a": "persisted", "status": "success", "s": resent["s"]})
        connection.publish(frame["cid"], b"two")
        again.send({"c": "ack", "a": "persisted", "status": "success", "s": again.expect("publish")["s"]})

    script = Script(play)
    done = subscribe(source, *SILENT, "-count", "2", *copy_to(second))
    script.end()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


def test_the_second_ctrl_c_ends_the_wait_for_copies_without_success(
    source: ScriptedPeer, second: ScriptedPeer
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "subscribe", "-server", f"127.0.0.1:{source.port}", "-topic", "t", *SILENT, *copy_to(second)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        connection, copied = let_in(source), let_in(second)
        subscribed(connection, b"one")
        copied.expect("publish", TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"note: waiting up to 30 s for the copies")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert b"error: a copy is not persisted: the wait was interrupted; 1 are not acknowledged" in errors


def test_a_message_of_a_queue_that_is_printed_is_acknowledged_whenever_ctrl_c_comes(
    source: ScriptedPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives between printing and acknowledging the second message."""
    handled: list[str | None] = []

    class Interrupted(receiving.Copies):
        def publish(self, message: receiving.Message) -> None:
            handled.append(message.bookmark)
            if len(handled) == 2:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(receiving, "Copies", Interrupted)
    acknowledged: list[str] = []

    def play() -> None:
        connection = let_in(source)
        subscribed(connection, b"one", b"two", b"three", queue=True)
        while (frame := connection.expect())["c"] != "flush":
            acknowledged.extend(frame["bm"].split(","))
        connection.ack(frame, "completed")

    script = Script(play)
    done = subscribe(source, *SILENT, "-ack", "-backlog", "10")
    script.end()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "one\ntwo\n", "")
    assert acknowledged == ["0|0|", "0|1|"]


def test_subscribe_notices_a_server_that_stops_answering(source: ScriptedPeer) -> None:
    """client.md §9.6."""

    def play() -> None:
        connection = let_in(source)
        assert connection.expect("heartbeat")["o"] == "start,1"
        connection.ack(connection.expect("subscribe"))
        threading.Timer(LIMIT_S, connection.close).start()

    script = Script(play)
    done = subscribe(source, "-heartbeat", "1")
    script.end()
    assert done.exit_code == 1
    assert "nothing received from the server for 2." in done.stderr


@pytest.mark.parametrize("name", ["subscribe", "sow_and_subscribe"])
def test_subscriptions_have_heartbeats_by_default(source: ScriptedPeer, name: str) -> None:
    """client.md §9.6."""

    def play() -> None:
        connection = let_in(source)
        assert connection.expect("heartbeat")["o"] == f"start,{receiving.HEARTBEAT_S}"
        connection.close()

    script = Script(play)
    where = ("-server", f"127.0.0.1:{source.port}", "-topic", "t")
    assert CliRunner().invoke(amps, [name, *where]).exit_code == 1
    script.end()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["subscribe", "help"])
def test_output_that_cannot_be_written_is_an_error_in_one_line(source: ScriptedPeer, command: str) -> None:
    arguments = ["help"]
    script = None
    if command == "subscribe":
        arguments = ["subscribe", "-server", f"127.0.0.1:{source.port}", "-topic", "t", *SILENT]
        script = Script(lambda: subscribed(let_in(source), b"one") and None)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            env=environment(),
            check=False,
        )
    if script is not None:
        script.end()
    problem = os.strerror(28)
    assert (done.returncode, done.stderr.decode()) == (1, f"error: the output cannot be written: {problem}\n")


@pytest.mark.parametrize("command", [["ping"], ["subscribe", "-topic", "t"], ["publish", "-topic", "t"]])
def test_a_hostile_server_does_not_control_the_terminal(source: ScriptedPeer, command: list[str]) -> None:
    def play() -> None:
        connection = source.accept()
        connection.ack(connection.expect("logon"), status="failure", reason="\x1b]0;pwned\x07\x1b[31mbad")

    script = Script(play)
    done = CliRunner().invoke(amps, [*command, "-server", f"127.0.0.1:{source.port}"])
    script.end()
    assert done.exit_code == 1
    assert "\\x1b]0;pwned\\x07" in done.stderr
    assert re.search("[\x00-\x08\x0b-\x1f]", done.output) is None
