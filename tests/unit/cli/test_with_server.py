"""The `amps` command against running servers."""

import datetime
import gzip
import re
import signal
import subprocess
import threading
import time
import zipfile
from pathlib import Path
from typing import Unpack

import pytest
from click.testing import CliRunner

import amps.cli.publish as publish_command
from amps.cli.publishing import ReliablePublisher
from amps.client import EPOCH, AckType, Client, Command, PublishArgs
from tests.support.certificates import Authority
from tests.support.peer import RawClient
from tests.support.queues import options, queue_xml
from tests.support.server import (
    ServerProcess,
    StartServer,
    Transport,
    loaded_module_xml,
    module_xml,
    wait_until,
)
from tests.support.stuck import StuckServer
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment, run, server_option


def records(count: int) -> list[bytes]:
    return [b'{"id":%d}' % number for number in range(count)]


def replay(server: ServerProcess, topic: str, count: int, *options: str) -> list[bytes]:
    """The lines that `amps subscribe` prints for the first `count` messages of a topic in the log."""
    where = (*server_option(server), "-topic", topic, "-bookmark", "epoch")
    done = run("subscribe", *where, "-count", count, "-timeout", "30", *options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.splitlines()


def logged(server: ServerProcess, topic: str) -> list[bytes]:
    """All messages of a topic in the log, up to the end of a replay."""
    bodies = []
    command = Command("subscribe", topic, bookmark=EPOCH, ack_type=AckType.COMPLETED)
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        for message in client.execute(command, control=True):
            if message.is_content:
                bodies.append(message.data)
            elif message.ack_type == AckType.COMPLETED:
                break
    return bodies


def test_client_17_ping_reports_where_it_connected(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """client.md §17."""
    server = start_server()
    monkeypatch.setenv("LOGNAME", "ana")
    done = run("ping", *server_option(server))
    assert done.returncode == 0
    assert (
        done.stdout.decode() == f"Successfully connected to tcp://ana@127.0.0.1:{server.port()}/amps/json\n"
    )


def test_client_17_ping_with_a_wrong_message_type_fails(start_server: StartServer) -> None:
    """client.md §17."""
    done = run("ping", *server_option(start_server()), "-type", "nvfix")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Unable to connect to AMPS (")


@pytest.mark.parametrize("source", ["file", "stdin", "gzip"])
def test_client_17_published_lines_are_replayed(
    start_server: StartServer, tmp_path: Path, source: str
) -> None:
    """client.md §17: publishing from a file or stdin; the last line shows count and rate."""
    server = start_server(log_topics=[".*"])
    data = b"\n".join(records(500))
    path = tmp_path / ("lines.gz" if source == "gzip" else "lines")
    path.write_bytes(gzip.compress(data) if source == "gzip" else data)
    options = () if source == "stdin" else ("-file", path)
    done = run(
        "publish", *server_option(server), "-topic", "t", *options, stdin=data if source == "stdin" else b""
    )
    assert done.returncode == 0, done.stderr.decode()
    assert re.fullmatch(rb"total messages published: 500 \(\d+\.\d\d/s\)\n", done.stdout)
    assert replay(server, "t", 500) == records(500)
    assert logged(server, "t") == records(500)


def test_client_17_rate_limits_the_publisher(start_server: StartServer) -> None:
    """client.md §17, option rate: 11 messages at 10/s take a second, by the timestamps in the log."""
    server = start_server(log_topics=[".*"])
    done = run("publish", *server_option(server), "-topic", "t", "-rate", "10", stdin=b"\n".join(records(11)))
    assert done.returncode == 0
    with RawClient.tcp(server.port()) as client:
        client.logon("reader")
        client.subscribe("t", "s", bm="0", o="timestamp")
        first, *_, last = (
            datetime.datetime.strptime(str(message["ts"]), "%Y%m%dT%H%M%S.%fZ")
            for message in client.receive_published(11)
        )
    assert (last - first).total_seconds() > 0.6  # a second, unless the first message was delayed


def test_client_17_live_input_is_published_at_once(start_server: StartServer) -> None:
    """client.md §17: each line is written after the one before has arrived, while the pipe stays open."""
    server = start_server()
    with (
        Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client,
        client.subscribe("t") as stream,
        subprocess.Popen(
            [*COMMAND, "publish", *server_option(server), "-topic", "t"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        ) as publisher,
    ):
        assert publisher.stdin is not None
        for line in records(20):
            publisher.stdin.write(line + b"\n")
            publisher.stdin.flush()
            message = stream.get(TIMEOUT_S)
            assert message is not None, f"{line!r} did not arrive"
            assert message.data == line
        said, _ = publisher.communicate(timeout=TIMEOUT_S)
        assert said.startswith(b"total messages published: 20 (")
        assert publisher.returncode == 0


def test_other_members_of_a_numbered_archive_are_left_out_with_a_note(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(log_topics=[".*"])
    with zipfile.ZipFile(tmp_path / "dump.zip", "w") as archive:
        for name in ("readme.txt", "2", "1"):
            archive.writestr(name, name)
    done = run("publish", *server_option(server), "-topic", "t", "-file", tmp_path / "dump.zip")
    assert (done.returncode, b"left out readme.txt" in done.stderr) == (0, True)
    assert logged(server, "t") == [b"1", b"2"]


def test_publishing_goes_on_after_the_server_was_killed(start_server: StartServer) -> None:
    """Every message is logged once and in order, although the server was killed twice during publishing."""
    server = start_server(log_topics=[".*"])
    lines = records(3000)
    done: list[subprocess.CompletedProcess[bytes]] = []

    def publish() -> None:
        done.append(
            run("publish", *server_option(server), "-topic", "t", "-rate", "1000", stdin=b"\n".join(lines))
        )

    publisher = threading.Thread(target=publish)
    publisher.start()
    for kills in range(2):
        server.log.wait_for(
            "1F-0004", count=kills + 1, timeout_s=TIMEOUT_S
        )  # the publisher has logged on (again)
        time.sleep(0.3)
        server.kill_all()
        server.start()
    publisher.join()
    assert done[0].returncode == 0, done[0].stderr.decode()
    assert done[0].stdout.startswith(b"total messages published: 3000 ")
    assert logged(server, "t") == lines


def test_publishing_to_a_server_that_stays_away_fails_and_reports_unacknowledged_messages(
    start_server: StartServer,
) -> None:
    server = start_server(log_topics=[".*"])
    publisher = subprocess.Popen(
        [*COMMAND, "publish", *server_option(server), "-topic", "t", "-timeout", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert publisher.stdin is not None
    publisher.stdin.write(b"1\n")
    publisher.stdin.flush()
    wait_until(lambda: server.log.search("logon") != [], 10, server.excerpt)
    server.kill_all()
    _, errors = publisher.communicate(b"2\n3\n", timeout=TIMEOUT_S)
    assert publisher.returncode == 1
    assert b"error: " in errors
    assert b"not acknowledged" in errors


def test_publishing_to_a_server_that_reads_nothing_fails_and_reports_acknowledged_messages() -> None:
    """The server answers the logon and nothing later. `-timeout` applies although data waits to be sent."""
    server = StuckServer()
    server.let_in()
    try:
        began = time.monotonic()
        lines = b"x" * 1_000_000 + b"\n"
        option = ("-server", f"127.0.0.1:{server.port}")
        done = run("publish", *option, "-topic", "t", "-timeout", "1", stdin=lines * 20)
    finally:
        server.close()
    assert done.returncode == 1
    assert re.search(
        rb"error: the server takes no messages for 1 s: "
        rb"0 messages are acknowledged, \d+ are not acknowledged\n",
        done.stderr,
    ), done.stderr
    assert done.stdout.startswith(b"total messages published: 0 ")
    assert time.monotonic() - began < TIMEOUT_S / 2


def test_publishing_at_a_rate_to_a_server_that_acknowledges_nothing_fails() -> None:
    """At a low rate all messages fit into the buffers of the system, so no send blocks."""
    server = StuckServer()
    server.let_in()
    try:
        option = ("-server", f"127.0.0.1:{server.port}", "-timeout", "1", "-rate", "20")
        done = run("publish", *option, "-topic", "t", stdin=b"1\n" * 20 * 600)
    finally:
        server.close()
    assert done.returncode == 1
    assert b"error: the server acknowledged nothing for 1 s: 0 messages are acknowledged, " in done.stderr


def test_messages_refused_until_the_end_do_not_count_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the client counts refusals. It may still run when all messages are acknowledged."""

    class Late(ReliablePublisher):
        def open(self) -> None:
            pass

        def publish(
            self, topic: str, data: bytes, *, delta: bool = False, **fields: Unpack[PublishArgs]
        ) -> None:
            self.published += 1

        def finish(self, timeout_s: float | None = None) -> None:
            pass

        def close(self) -> None:
            super().close()
            self.failures, self.first_failure = 2, "t: refused"

    monkeypatch.setattr(publish_command, "ReliablePublisher", Late)
    done = CliRunner().invoke(
        publish_command.publish, ["-server", "127.0.0.1:1", "-topic", "t"], input=b"1\n2\n3\n"
    )
    assert done.exit_code == 1
    assert done.stdout.startswith("total messages published: 1 ")
    assert "refused 2 messages" in done.stderr


def test_a_refused_message_makes_publish_fail(start_server: StartServer) -> None:
    server = start_server(log_topics=[".*"])
    done = run("publish", *server_option(server), "-topic", "/AMPS/mine", stdin=b"1\n2\n")
    assert done.returncode == 1
    assert b"refused 2 messages, first /AMPS/mine: " in done.stderr
    assert done.stdout.startswith(b"total messages published: 0 ")


def test_subscribe_does_not_wait_longer_than_its_timeout_for_a_silent_server() -> None:
    server = StuckServer()
    try:
        began = time.monotonic()
        option = ("-server", f"127.0.0.1:{server.port}", "-timeout", ".1")
        done = run("subscribe", *option, "-topic", "t")
        first_s = time.monotonic() - began
        began = time.monotonic()
        longer = run("subscribe", *option[:-1], "6", "-topic", "t")
        second_s = time.monotonic() - began
    finally:
        server.close()
    assert (done.returncode, longer.returncode) == (1, 1)
    assert b"error: no answer to logon in time" in done.stderr
    # On a busy machine a start takes seconds, in both runs alike.
    assert second_s - first_s > 3


def test_client_17_subscribe_prints_by_format(start_server: StartServer) -> None:
    """client.md §17, option format."""
    server = start_server(log_topics=[".*"])
    assert run("publish", *server_option(server), "-topic", "orders/1", stdin=b"abc").returncode == 0
    (line,) = replay(server, "^orders", 1, "-format", "<{topic}|{command}|{length}|{data}|{sowkey}|{}>")
    assert line == b"<orders/1|publish|3|abc||{}>"
    (bookmark,) = replay(server, "orders/1", 1, "-format", "{bookmark}")
    assert re.fullmatch(rb"\d+\|1\|", bookmark)
    after = ("-bookmark", bookmark.decode(), "-timeout", "3")
    assert replay(server, "orders/1", 1, *after) == []


def test_subscribe_shows_where_its_filter_is_wrong(start_server: StartServer) -> None:
    """client.md §17, option filter; expressions.md §14.7."""
    where = (*server_option(start_server()), "-topic", "t", "-filter")
    done = run("subscribe", *where, "/id >")
    assert done.returncode == 1
    first, *rest = done.stderr.decode().splitlines()
    assert first.startswith(
        "error: subscribe failed: bad filter: the expression ends where a field, a literal or a function is expected"
    )
    assert rest == ["  /id >", "       ^"]
    long = run("subscribe", *where, "/id > " + "1 + " * 100)
    assert len(long.stderr.decode().splitlines()) == 1


def test_client_17_fields_of_tags_are_requested(start_server: StartServer) -> None:
    """client.md §17, option format; protocol.md §10: `ts`, and `bm` outside of replays, are sent only on request."""
    server = start_server(log_topics=[".*"])
    shown = "{timestamp} {bookmark}"
    assert run("publish", *server_option(server), "-topic", "t", stdin=b"1").returncode == 0
    (replayed,) = replay(server, "t", 1, "-format", shown)
    assert re.fullmatch(rb"\d{8}T\d{6}\.\d{6}Z \d+\|1\|", replayed)
    subscriber = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-count", "1", "-format", shown],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    server.log.wait_for("14-0001", "to 't'", "timestamp,bookmark")
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.publish("t", b"2")
        live, _ = subscriber.communicate(timeout=TIMEOUT_S)
    assert re.fullmatch(rb"\d{8}T\d{6}\.\d{6}Z \d+\|\d+\|\n", live)


@pytest.mark.parametrize(
    ("bookmark", "expected"),
    [
        ("-5m", b"1\n"),
        ("2001-01-01", b"1\n"),
        ("[epoch:now]", b"1\n"),
        ("now", b""),
        ("2100-01-01T00:00+01:00", b""),
    ],
)
def test_subscribe_begins_at_times_in_usual_notations(
    start_server: StartServer, bookmark: str, expected: bytes
) -> None:
    """client.md §7 and §17, option bookmark."""
    server = start_server(log_topics=[".*"])
    assert run("publish", *server_option(server), "-topic", "t", stdin=b"1").returncode == 0
    done = run("subscribe", *server_option(server), "-topic", "t", "-bookmark", bookmark, "-timeout", "1")
    assert (done.returncode, done.stdout) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("-topic", "wrok"),
            "note: no message has come yet: topic 'wrok', message type 'json'. Check -topic and -type; earlier "
            "messages are shown with -bookmark epoch only",
        ),
        (
            ("-topic", "work", "-filter", "/a = 1", "-bookmark", "epoch"),
            "note: no message that matches '/a = 1' has come yet: topic 'work', message type 'json', from 'epoch' on. "
            "Check -topic, -type and -filter, and whether -bookmark is too late",
        ),
    ],
)
def test_subscribe_reports_when_nothing_matches(
    start_server: StartServer, arguments: tuple[str, ...], told: str
) -> None:
    """A mistyped topic or message type is no error. A note is shown once, after a moment without messages."""
    server = start_server(log_topics=[".*"])
    assert run("publish", *server_option(server), "-topic", "work", stdin=b"1").returncode == 0
    for timeout in ("1", "4"):  # before and after the moment of the note
        done = run("subscribe", *server_option(server), *arguments, "-timeout", timeout)
        assert (done.returncode, done.stdout) == (0, b"")
        assert done.stderr.decode() == told + "\n"
    done = run("subscribe", *server_option(server), "-topic", "work", "-bookmark", "epoch", "-timeout", "1")
    assert (done.stdout, done.stderr) == (b"1\n", b"")


def test_client_17_the_server_may_be_a_tls_address(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §2 and §17: `tcps` in -server is TLS, verified against -ca-file; -copy takes it too."""
    authority = Authority(tmp_path)
    identity = authority.issue("server")
    files = (
        f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
    )
    server = start_server(
        log_topics=[".*"], transports=(Transport(name="tls", type="tcps", extra_xml=files),)
    )
    trusted = ("-server", f"tcps://127.0.0.1:{server.port()}", "-ca-file", authority.certificate)
    done = run("ping", *trusted)
    assert done.returncode == 0, done.stderr.decode()
    assert run("publish", *trusted, "-topic", "t", stdin=b"1").returncode == 0
    shown = run("subscribe", *trusted, "-topic", "t", "-bookmark", "epoch", "-count", "1")
    assert shown.stdout == b"1\n"
    done = run("ping", "-server", f"tcps://127.0.0.1:{server.port()}")
    assert done.returncode == 1
    assert b"certificate verify failed" in done.stderr
    done = run("ping", "-server", f"tcp://127.0.0.1:{server.port()}")
    assert done.returncode == 1
    assert b"does its port expect TLS (tcps)?" in done.stderr


def test_subscribe_ends_after_a_count(start_server: StartServer) -> None:
    server = start_server(log_topics=[".*"])
    assert (
        run("publish", *server_option(server), "-topic", "t", stdin=b"\n".join(records(50))).returncode == 0
    )
    assert replay(server, "t", 7) == records(7)


def test_client_17_ctrl_c_ends_subscribe_with_0(start_server: StartServer) -> None:
    """client.md §17. Messages received before the signal are printed."""
    server = start_server(log_topics=[".*"])
    assert run("publish", *server_option(server), "-topic", "t", stdin=b"1\n2\n").returncode == 0
    subscriber = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-bookmark", "epoch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert subscriber.stdout is not None
    assert [subscriber.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
    subscriber.send_signal(signal.SIGINT)
    _, errors = subscriber.communicate(timeout=TIMEOUT_S)
    assert (subscriber.returncode, errors) == (0, b"")


def test_client_17_copy_publishes_to_a_second_server_under_the_same_topic(start_server: StartServer) -> None:
    """client.md §17, option copy."""
    first, second = start_server(log_topics=[".*"]), start_server(log_topics=[".*"])
    assert run("publish", *server_option(first), "-topic", "t", stdin=b"\n".join(records(20))).returncode == 0
    assert replay(first, "t", 20, "-copy", f"127.0.0.1:{second.port()}") == records(20)
    assert logged(second, "t") == records(20)


@pytest.mark.parametrize("replayed", [True, False], ids=["replayed", "live"])
def test_a_subscriber_that_loses_its_server_tells_how_to_resume(
    start_server: StartServer, replayed: bool
) -> None:
    """client.md §17 does not describe reconnecting: the command ends with 1, after printing all received messages."""
    server = start_server(log_topics=[".*"])
    from_epoch = ("-bookmark", "epoch") if replayed else ()
    subscriber = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", *from_epoch],
        bufsize=0,  # readline reads no further than the line
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert subscriber.stdout is not None
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        got = threading.Thread(target=subscriber.stdout.readline)  # the first line proves the subscription
        got.start()
        while got.is_alive():
            client.publish("t", b"1")
            got.join(0.05)
        client.publish_flush()
    server.kill_all()
    said, errors = subscriber.communicate(timeout=TIMEOUT_S)
    assert subscriber.returncode == 1
    assert b"error: the server closed the connection; " in errors
    if not replayed:
        assert b"only queues keep the messages published until then" in errors
        return
    found = re.search(rb"subscribe again with -bookmark '([^']+)'", errors)
    assert found is not None
    server.start()
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.publish("t", b"last")
        client.publish_flush()
    where = (*server_option(server), "-topic", "t", "-bookmark", found[1].decode())
    rest = run("subscribe", *where, "-timeout", "2").stdout.splitlines()
    assert rest[-1] == b"last"
    assert 1 + len(said.splitlines()) + len(rest) == len(logged(server, "t"))


def publish_to_queue(server: ServerProcess, count: int) -> None:
    done = run("publish", *server_option(server), "-topic", "T", stdin=b"\n".join(records(count)))
    assert done.returncode == 0, done.stderr.decode()


def from_queue(server: ServerProcess, *more: object) -> list[bytes]:
    """The lines that `amps subscribe` prints for a queue until no message arrives for a second."""
    done = run("subscribe", *server_option(server), "-topic", "Q", "-timeout", "1", *more)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.splitlines()


def test_client_67_subscribe_empties_a_queue(start_server: StartServer) -> None:
    """client.md §21 67; options ack and backlog of §17: without ack, all messages are delivered again."""
    server = start_server(**options(queue_xml("Q", "T", LeasePeriod="1h")))
    publish_to_queue(server, 25)
    assert from_queue(server) == records(1)
    assert from_queue(server, "-backlog", 3) == records(3)
    (line,) = from_queue(server, "-format", "{topic} {lease_period}")
    assert re.fullmatch(rb"Q \d{8}T\d{6}\.\d{6}Z", line)
    assert from_queue(server, "-ack", "-count", 2) == records(2)
    assert from_queue(server, "-ack", "--backlog", 3) == records(25)[2:]
    assert from_queue(server, "-backlog", 3) == []


def test_subscribe_frees_the_backlog_of_a_queue_that_delivers_once(start_server: StartServer) -> None:
    """queues.md D-29: a delivered message has left the queue, but counts in the backlog until acknowledged."""
    server = start_server(**options(queue_xml("Q", "T", Semantics="at-most-once")))
    publish_to_queue(server, 9)
    assert from_queue(server, "-backlog", 2) == records(2)
    assert from_queue(server, "-ack", "-backlog", 2) == records(9)[2:]


def test_subscribe_acknowledges_messages_that_are_safe_on_the_second_server(
    start_server: StartServer,
) -> None:
    """client.md §17, options ack and copy: messages whose copy failed stay in the queue."""
    server = start_server(**options(queue_xml("Q", "T")))
    second = start_server(log_topics=[".*"])
    publish_to_queue(server, 5)
    copy = ("-copy", f"127.0.0.1:{second.port()}", "-ack", "-backlog", 2)
    assert from_queue(server, *copy) == records(5)
    assert logged(second, "Q") == records(5)
    publish_to_queue(server, 3)
    refused = ("-copy", f"127.0.0.1:{server.port()}", "-format", "{command}")
    assert from_queue(server, "-ack", "-count", 3, "-backlog", 3, *refused) == [b"publish"] * 3
    # The copies went into the same queue, behind the originals.
    assert from_queue(server, "-backlog", 10) == records(3)
    third = start_server(
        log_topics=[".*"],
        modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
        entitlement_xml=module_xml("Entitlement", "simple", DeniedTopics="^Q"),
    )
    copy = ("-copy", f"127.0.0.1:{third.port()}", "-ack", "-backlog", 5)
    done = run("subscribe", *server_option(server), "-topic", "Q", *copy)
    assert done.returncode == 1
    assert b"a copy was refused: Q: not entitled" in done.stderr
    assert from_queue(server, "-backlog", 10) == records(3)


def test_subscribe_keeps_messages_that_its_reader_did_not_read(start_server: StartServer) -> None:
    """After a broken pipe, `amps subscribe` acknowledges no further messages."""
    server = start_server(**options(queue_xml("Q", "T")))
    subscriber = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "Q", "-ack"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert subscriber.stdout is not None
    publish_to_queue(server, 1)
    assert subscriber.stdout.readline() == b'{"id":0}\n'
    subscriber.stdout.close()
    publish_to_queue(server, 2)
    assert subscriber.wait(TIMEOUT_S) == 0
    assert subscriber.stderr is not None
    assert subscriber.stderr.read() == b""
    subscriber.stderr.close()
    assert from_queue(server, "-backlog", 5) == records(2)
