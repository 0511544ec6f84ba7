"""Queries and deletions (`amps sow`, `sow_and_subscribe`, `sow_delete`), and options of all receiving commands.

The numbers are those of client.md.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import Client
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer
from tests.support.terminal import Terminal
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment, run, server_option
from tests.unit.cli.test_with_server import logged, publish_to_queue, records
from tests.unit.client.peer import Connection, Frame, ScriptedPeer


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    scripted = ScriptedPeer()
    scripted.listener.settimeout(TIMEOUT_S)  # the process starts slowly on a busy machine
    yield scripted
    scripted.close()


@pytest.fixture
def command(peer: ScriptedPeer) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start commands for the scripted server."""
    started = []

    def start(name: str, *arguments: str, stdin: bytes = b"") -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [*COMMAND, name, "-server", f"127.0.0.1:{peer.port}", "-topic", "t", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def asked(peer: ScriptedPeer, name: str) -> tuple[Connection, Frame]:
    """The connection of a command, and the frame that it sent after the logon."""
    connection = peer.accept()
    connection.logon()
    return connection, connection.expect(name)


def batch(connection: Connection, query_id: str, *rows: tuple[str, bytes], number: int = 1) -> None:
    """Send records as one frame."""
    header = {"c": "sow", "t": "t", "query_id": query_id, "bs": len(rows), "gseq": number}
    body = b"".join(json.dumps({"k": key, "l": len(data)}).encode() + data for key, data in rows)
    connection.send(header, body=body)


def answer(connection: Connection, frame: Frame, *rows: tuple[str, bytes]) -> None:
    """The whole result of a query."""
    query_id = frame.get("query_id") or frame["cid"]
    connection.send({"c": "group_begin", "query_id": query_id})
    connection.ack(frame)
    batch(connection, query_id, *rows)
    connection.send({"c": "group_end", "query_id": query_id})


def finished(process: "subprocess.Popen[bytes]") -> tuple[int, bytes, str]:
    out, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, errors.decode()


def waiting(server: ServerProcess, *arguments: object, name: str = "sow") -> list[bytes]:
    done = run(name, *server_option(server), "-topic", "Q", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.splitlines()


def test_client_67_sow_prints_by_format(start_server: StartServer) -> None:
    """client.md §21, 67: filter, order, number and format, with the waiting messages of a queue."""
    server = start_server(**options(queue_xml("Q", "T")))
    publish_to_queue(server, 6)
    where = ("-filter", "/id > 1", "-orderby", "/id DESC", "-topn", 2)
    lines = waiting(server, *where, "-format", "{command}:{sowkey}")
    assert len(lines) == 2
    first, second = (int(re.fullmatch(rb"sow:(\d+)", line)[1]) for line in lines)  # type: ignore[index]
    assert first > second
    assert waiting(server, *where, "-batchsize", 1) == [b'{"id":5}', b'{"id":4}']
    assert waiting(server, "-count", 3) == records(3)
    shown = [json.loads(line) for line in waiting(server, "-output", "json", "-topn", 1)]
    assert shown[0]["data"] == {"id": 0}
    assert {"topic": "Q", "command": "sow"}.items() <= shown[0]["header"].items()
    assert waiting(server, "-output", "table", "-topn", 1) == [b"id", b"0"]


def test_client_67_sow_sends_its_options(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §21, 67: the command of the query, and two lines in the form of the format."""
    process = command(
        "sow", "-filter", "/a > 1", "-orderby", "/a", "-topn", "2", "-format", "{command}:{sowkey}"
    )
    connection, frame = asked(peer, "sow")
    assert (frame["f"], frame["orderby"], frame["t"]) == ("/a > 1", "/a", "t")
    assert "top_n=2" in frame["o"]
    answer(connection, frame, ("11", b'{"a":2}'), ("12", b'{"a":3}'))
    assert finished(process) == (0, b"sow:11\nsow:12\n", "")


def test_client_67_sow_delete_by_data_and_by_filter(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §21, 67: each line of standard input is the data of a delete; a filter is one delete."""
    process = command("sow_delete", stdin=b'{"id":1}\n\n{"id":2}')
    connection, frame = asked(peer, "sow_delete")
    bodies = []
    for deleted in (1, 3):
        bodies.append(frame.body)
        assert frame["t"] == "t"
        connection.ack(frame, "stats", records_deleted=deleted)
        if deleted == 1:
            frame = connection.expect("sow_delete")
    assert bodies == [b'{"id":1}', b'{"id":2}']
    assert finished(process) == (0, b"total records deleted: 4\n", "")
    process = command("sow_delete", "-filter", "/id > 5")
    connection, frame = asked(peer, "sow_delete")
    assert (frame["f"], frame.body) == ("/id > 5", b"")
    connection.ack(frame, "stats", records_deleted=7)
    assert finished(process) == (0, b"total records deleted: 7\n", "")


def test_client_67_sow_delete_acknowledges_messages_of_a_queue(start_server: StartServer) -> None:
    """client.md §21, 67, with a server: by filter; a queue takes no data, and that is an error."""
    server = start_server(**options(queue_xml("Q", "T")))
    publish_to_queue(server, 6)
    assert waiting(server, "-filter", "/id < 4", name="sow_delete") == [b"total records deleted: 4"]
    assert waiting(server) == records(6)[4:]
    done = run("sow_delete", *server_option(server), "-topic", "Q", stdin=b'{"id":4}\n{"id":5}\n')
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"invalid options" in done.stderr
    done = run("sow_delete", *server_option(server), "-topic", "Q", "-filter", "/id >")
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, [b"  /id >", b"       ^"])


def test_sow_fails_for_a_topic_without_records(start_server: StartServer) -> None:
    done = run("sow", *server_option(start_server()), "-topic", "t")
    assert (done.returncode, b"invalid topic" in done.stderr) == (1, True)


def test_sow_of_an_incomplete_result_fails(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """The records that have arrived are printed; the exit status says that there may be more."""
    process = command("sow", "-timeout", "1")
    connection, frame = asked(peer, "sow")
    connection.ack(frame)
    batch(connection, frame.get("query_id") or frame["cid"], ("1", b"one"))
    status, out, errors = finished(process)
    assert (status, out) == (1, b"one\n")
    assert "incomplete: nothing arrived for 1 s after 1 messages" in errors
    process = command("sow")
    connection, frame = asked(peer, "sow")
    connection.ack(frame)
    batch(connection, frame.get("query_id") or frame["cid"], ("1", b"one"))
    time.sleep(0.1)
    connection.close()
    status, out, errors = finished(process)
    assert (status, out) == (1, b"one\n")
    assert "run the command again" in errors


def test_ctrl_c_during_a_query_is_no_success(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    process = command("sow")
    connection, frame = asked(peer, "sow")
    connection.ack(frame)
    batch(connection, frame.get("query_id") or frame["cid"], ("1", b"one"))
    assert process.stdout.readline() == b"one\n"
    process.send_signal(signal.SIGINT)
    assert finished(process)[0] == 1


def test_sow_and_subscribe_prints_records_then_messages(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §17: without a gap; -count counts both; a timeout after the records is no failure."""
    process = command("sow_and_subscribe", "-heartbeat", "0", "-count", "3", "-batchsize", "5")
    connection, frame = asked(peer, "sow_and_subscribe")
    assert frame["bs"] == 5
    answer(connection, frame, ("1", b"one"), ("2", b"two"))
    connection.publish(frame.get("sub_id") or frame["cid"], b"three")
    assert finished(process) == (0, b"one\ntwo\nthree\n", "")
    process = command("sow_and_subscribe", "-heartbeat", "0", "-timeout", ".5")
    connection, frame = asked(peer, "sow_and_subscribe")
    answer(connection, frame, ("1", b"one"))
    assert finished(process) == (0, b"one\n", "")


def test_sow_and_subscribe_of_a_topic_without_records_continues_live(start_server: StartServer) -> None:
    server = start_server()
    process = subprocess.Popen(
        [*COMMAND, "sow_and_subscribe", *server_option(server), "-topic", "t", "-count", "1"],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    server.log.wait_for("14-0001", "to 't'")
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.publish("t", b"live")
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, b"live\n")


@pytest.mark.parametrize(
    ("name", "sent"),
    [("subscribe", "delta_subscribe"), ("sow_and_subscribe", "sow_and_delta_subscribe")],
)
def test_client_17_delta_uses_the_delta_command(
    peer: ScriptedPeer, command: Callable[..., Any], name: str, sent: str
) -> None:
    """client.md §17, option delta."""
    process = command(name, "-delta", "-heartbeat", "0", "-count", "1")
    connection, frame = asked(peer, sent)
    connection.ack(frame)
    connection.publish(frame.get("sub_id") or frame["cid"], b"part")
    assert finished(process) == (0, b"part\n", "")


def test_client_17_a_query_sends_its_page_and_its_fields(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §17; sow.md §11, §18, §9: pages, keys, select lists, and the state of a moment."""
    process = command(
        *("sow", "-topn", "2", "-skipn", "4", "-keys", "11,12", "-select", "-/,+/id", "-bookmark", "20260102T030405"),
    )
    connection, frame = asked(peer, "sow")
    assert (frame["sow_keys"], frame["bm"]) == ("11,12", "20260102T030405")
    assert frame["o"] == "select=[-/,+/id],skip_n=4,top_n=2"
    answer(connection, frame, ("11", b'{"id":1}'))
    assert finished(process) == (0, b'{"id":1}\n', "")


@pytest.mark.parametrize("name", ["subscribe", "sow_and_subscribe"])
def test_client_17_records_that_go_out_of_focus_are_printed(
    peer: ScriptedPeer, command: Callable[..., Any], name: str
) -> None:
    """client.md §17, sow.md §13: with the reason; also of delta subscriptions."""
    shown = ("-heartbeat", "0", "-count", "2", "-format", "{command} {reason} {data}")
    process = command(name, "-delta", "-noempties", "-oof", "-select", "-/n", *shown)
    connection, frame = asked(peer, "delta_subscribe" if name == "subscribe" else "sow_and_delta_subscribe")
    assert frame["o"] == "oof,no_empties,select=[-/n]"
    sub_id = frame.get("sub_id") or frame["cid"]
    if name == "subscribe":
        connection.ack(frame)
        connection.publish(sub_id, b"one")
    else:
        answer(connection, frame, ("1", b"one"))
    connection.send({"c": "oof", "t": "t", "sids": sub_id, "k": "1", "reason": "deleted", "l": 3}, body=b"two")
    first = b"publish  one" if name == "subscribe" else b"sow  one"
    assert finished(process) == (0, first + b"\noof deleted two\n", "")


def test_client_17_a_state_of_the_past_and_what_followed(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §17, sow.md §9."""
    moment = ("-bookmark", "20260102T030405")
    process = command("sow_and_subscribe", "-heartbeat", "0", "-count", "1", *moment, "-topn", "3")
    connection, frame = asked(peer, "sow_and_subscribe")
    assert (frame["bm"], frame["o"]) == ("20260102T030405", "top_n=3")
    answer(connection, frame, ("1", b"one"))
    assert finished(process) == (0, b"one\n", "")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("sow", "-skipn", "4"), "-topn"),
        (("sow", "-select", "-/n", "-copy", "localhost:1"), "-copy"),
        (("sow_and_subscribe", "-oof", "-copy", "localhost:1"), "-copy"),
        (("sow_and_subscribe", "-noempties"), "-delta"),
        (("sow_and_subscribe", "-delta", "-bookmark", "now"), "-bookmark"),
        (("subscribe", "-noempties"), "-delta"),
        (("subscribe", "-oof", "-bookmark", "epoch"), "-oof"),
        (("sow_delete", "-keys", "1", "-filter", "1=1"), "-keys"),
    ],
)
def test_client_17_options_that_do_not_go_together(arguments: tuple[str, ...], hint: str) -> None:
    """client.md §17: a usage error that names the option to add or to leave out, before any connection."""
    done = run(arguments[0], "-server", "localhost:1", "-topic", "t", *arguments[1:])
    assert done.returncode == 2
    assert hint.encode() in done.stderr


def test_client_17_sow_delete_by_keys(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §17, sow.md §6."""
    process = command("sow_delete", "-keys", "11,12")
    connection, frame = asked(peer, "sow_delete")
    assert (frame["sow_keys"], frame.body) == ("11,12", b"")
    connection.ack(frame, "stats", records_deleted=1)
    assert finished(process) == (0, b"total records deleted: 1\n", "")


def test_client_17_publish_delta(peer: ScriptedPeer, command: Callable[..., Any]) -> None:
    """client.md §17, option delta of publish."""
    process = command("publish", "-delta", stdin=b"one\ntwo\n")
    connection, frame = asked(peer, "delta_publish")
    assert connection.expect("delta_publish").body == b"two"
    assert frame.body == b"one"
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    status, out, _ = finished(process)
    assert (status, out[:27]) == (0, b"total messages published: 2")


def test_client_17_copy_of_a_query(start_server: StartServer) -> None:
    """client.md §17, option copy: the records are persisted on the second server, under their topic."""
    server = start_server(**options(queue_xml("Q", "T")))
    second = start_server(log_topics=[".*"])
    publish_to_queue(server, 4)
    assert waiting(server, "-copy", f"127.0.0.1:{second.port()}") == records(4)
    assert logged(second, "Q") == records(4)


def test_client_17_a_copy_without_acknowledgement_is_no_success(
    peer: ScriptedPeer, start_server: StartServer
) -> None:
    """client.md §17, option copy: the second server takes the message and dies before it is persisted."""
    server = start_server(log_topics=[".*"])
    assert run("publish", *server_option(server), "-topic", "t", stdin=b"one").returncode == 0
    process = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-bookmark", "epoch", "-count", "1",
         "-heartbeat", "0", "-copy", f"127.0.0.1:{peer.port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    connection = peer.accept()
    connection.logon()
    assert connection.expect("publish").body == b"one"
    connection.close()
    again = peer.accept()
    again.logon()
    resent = again.expect("publish")
    assert (resent.body, resent["t"]) == (b"one", "t")
    again.send({"c": "ack", "a": "persisted", "status": "failure", "reason": "not entitled", "s": resent["s"]})
    status, out, errors = finished(process)
    assert (status, out) == (1, b"one\n")
    assert "a copy was refused: t: not entitled" in errors


def test_the_second_server_gets_no_credentials_of_the_first(peer: ScriptedPeer, start_server: StartServer) -> None:
    server = start_server()
    env = {**environment(), "AMPS_USER": "ana", "AMPS_PASSWORD": "secret", "LOGNAME": "me"}
    process = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-copy", f"127.0.0.1:{peer.port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    frame = peer.accept().logon()
    process.kill()
    process.communicate()
    assert (frame.get("user_id"), frame.get("pw")) == ("me", None)


def test_a_table_is_shown_while_messages_arrive(start_server: StartServer) -> None:
    """client.md §17: rows are written as soon as no more messages wait, not at the end."""
    server = start_server()
    process = subprocess.Popen(
        [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-output", "table"],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    server.log.wait_for("14-0001", "to 't'")
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.publish("t", b'{"id":1}')
        assert [process.stdout.readline() for _ in range(2)] == [b"id\n", b"1\n"]
        client.publish("t", b'{"id":2,"x":"y"}')
        assert [process.stdout.readline() for _ in range(2)] == [b"id  x\n", b"2   y\n"]
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
    process.stdout.close()


def test_client_17_on_a_terminal_output_fits_and_ctrl_c_ends_with_0(start_server: StartServer) -> None:
    """client.md §17: the table is as wide as the terminal, pretty output has colours, Ctrl-C is no failure."""
    server = start_server(log_topics=[".*"])
    body = json.dumps({f"field{n}": "x" * 30 for n in range(20)}).encode()
    assert run("publish", *server_option(server), "-topic", "t", stdin=body).returncode == 0
    for output, shown in (("table", "…"), ("pretty", '"field19"')):
        command = [*COMMAND, "subscribe", *server_option(server), "-topic", "t", "-bookmark", "epoch"]
        with Terminal([*command, "-output", output], environment(), columns=50) as terminal:
            screen = terminal.wait_for(lambda text, shown=shown: shown in text, "the message is not shown")  # type: ignore[misc]
            if output == "table":
                assert all(len(line) <= 50 for line in screen.splitlines())
            else:
                assert b"\x1b[1mt\x1b[0m" in terminal.output
            terminal.interrupt()
            assert terminal.end() == 0


@pytest.mark.parametrize("output", ["json", "pretty", "table"])
def test_every_output_acknowledges_messages_of_queues(start_server: StartServer, output: str) -> None:
    """client.md §17, options ack and output: a message is acknowledged when it is written, also in a table."""
    server = start_server(**options(queue_xml("Q", "T")))
    publish_to_queue(server, 5)
    where = (*server_option(server), "-topic", "Q", "-ack", "-backlog", 2, "-timeout", 3)
    done = run("subscribe", *where, "-output", output)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    if output == "json":
        shown = [json.loads(line) for line in lines]
        assert [row["data"]["id"] for row in shown] == [0, 1, 2, 3, 4]
        assert {"topic", "command", "bookmark", "timestamp", "lease_period"} <= shown[0]["header"].keys()
    elif output == "table":
        assert lines == ["id", "0", "1", "2", "3", "4"]
    else:
        assert sum("lease_period" in line for line in lines) == 5
    assert waiting(server) == []
