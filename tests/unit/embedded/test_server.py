"""`amps.Server`: what it starts runs, survives what a test does to it, and leaves nothing behind."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from amps.client import (
    EPOCH,
    Client,
    CompositeMessageBuilder,
    CompositeMessageParser,
    InvalidTopicException,
)
from amps.embedded import Server, ServerConfigurationError, ServerError
from amps.embedded.configuration import MESSAGE_TYPES
from amps.embedded.ports import ReservedPort
from tests.support.ports import release_port, reserve_port
from tests.support.server import wait_until

RUNTIME_BASE = Path(os.environ.get("AMPS_RUNTIME_DIRECTORY", "/dev/shm"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with Server(queues={"work": {"LeasePeriod": "30s", "MaxPerSubscriptionBacklog": 5}}) as server:
        yield server


def processes_of(session: int) -> list[int]:
    """The processes of a session, without those that have ended and wait for their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def first_pid(server: Server) -> int:
    assert server._process is not None
    return server._process.pid


def test_everything_is_recorded_by_default(shared: Server) -> None:
    for message_type in MESSAGE_TYPES:
        with Client(f"rec-{message_type}", shared.uri(message_type)) as client:
            client.publish("t", b"1=x\x01")
            client.flush()
            assert [m.data for m in client.bookmark_subscribe("t", EPOCH, top_n=1)] == [b"1=x\x01"]


def test_queues_are_served_with_their_elements(shared: Server) -> None:
    with Client("queues", shared.uri()) as client:
        client.publish("work", {"n": 1})
        stream = client.subscribe("work", max_backlog=10)
        message = next(stream)
        assert (message.json(), stream.max_backlog) == ({"n": 1}, 5)
        message.ack()


def test_sow_topics_have_keys_or_elements(tmp_path: Path) -> None:
    topics = {
        "one": "/id",
        "two": ["/desk", "/id"],
        "desks/names": {"Key": ["/id"], "Durability": "transient"},
        "given": {"Expiration": "enabled"},
    }
    with Server(directory=tmp_path, sow=topics, topics=["one"]) as server:
        with Client("sow", server.uri()) as client:
            for name in ("one", "two", "desks/names"):
                for message in ({"id": 1, "desk": "a"}, {"id": 1, "desk": "b"}):
                    client.publish(name, message)
            client.publish("given", "1", sow_key="first")
            client.flush()
            assert [client.sow_count(name) for name in topics] == [1, 2, 1, 1]
        server.restart()
        with Client("sow", server.uri()) as client:
            assert [client.sow_count(name) for name in topics] == [1, 2, 0, 1]
    assert sorted(path.name for path in (tmp_path / "sow").iterdir()) == [
        "given.json.sow",
        "one.json.sow",
        "two.json.sow",
    ]


def test_a_killed_server_keeps_what_it_acknowledged_and_comes_back_at_the_same_address() -> None:
    with Server() as server:
        uri, first = server.uri(), first_pid(server)
        with Client("a", uri) as client:
            client.publish("t", "1")
            client.flush()
            server.kill()
            assert not server.running
            assert processes_of(first) == []
            wait_until(lambda: not client.connected, 20, "the client has not noticed")
        server.start()
        assert server.running
        assert server.uri() == uri
        with Client("b", uri) as client:
            client.publish("t", "2")
            client.flush()
        server.restart()
        with Client("c", uri) as client:
            assert [m.data for m in client.bookmark_subscribe("t", EPOCH, top_n=2)] == [b"1", b"2"]
        server.stop()
        assert not server.running
        server.stop()
        server.kill()
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", server.port()))


def test_nothing_is_left_behind() -> None:
    server = Server()
    with pytest.raises(ServerError, match="no directory before start"):
        _ = server.directory
    with server:
        directory, session = server.directory, first_pid(server)
        assert directory.is_dir()
        wait_until(lambda: "00-0015" in server.output, 20, lambda: server.output)  # another process writes the log
        with pytest.raises(ServerError, match="runs already"):
            server.start()
    assert not directory.exists()
    assert processes_of(session) == []
    assert list(RUNTIME_BASE.glob(f"amps-run-{session}-*")) == []
    server.close()


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with Server(directory=tmp_path / "here") as server, Client("a", server.uri()) as client:
        client.publish("t", "kept")
        client.flush()
    assert list((tmp_path / "here" / "journal").glob("*.journal"))
    with Server(directory=tmp_path / "here") as server, Client("a", server.uri()) as client:
        assert [m.data for m in client.bookmark_subscribe("t", EPOCH, top_n=1)] == [b"kept"]


def test_a_whole_configuration_gets_free_ports_by_name_and_composite_messages_pass(tmp_path: Path) -> None:
    """client.md §21, 65: the server reads the parts that the builder writes, and hands on the unparsed payload."""
    config = tmp_path / "own.xml"
    config.write_text(
        """<AMPSConfig><Name>Own</Name>
        <MessageTypes><MessageType><Name>pair</Name><Module>composite-local</Module>
          <MessageType>json</MessageType><MessageType>binary</MessageType></MessageType></MessageTypes>
        <Transports>
          <Transport><Name>a</Name><Type>tcp</Type><InetAddr>127.0.0.1:${PORT}</InetAddr>
            <Protocol>amps</Protocol></Transport>
          <Transport><Name>b</Name><Type>tcp</Type><InetAddr>127.0.0.1:${PORT_json}</InetAddr>
            <Protocol>amps</Protocol><MessageType>json</MessageType></Transport>
        </Transports></AMPSConfig>"""
    )
    with Server(configuration=config) as server:
        assert server.port() != server.port("json")
        with Client("json", server.uri(port="json")) as client, pytest.raises(InvalidTopicException):
            client.bookmark_subscribe("t", EPOCH)
        with pytest.raises(ValueError, match=r"no \$\{PORT_other\}"):
            server.uri(port="other")
        with Client("pair", server.uri("pair")) as client:
            stream = client.subscribe("t", "/0/id = 2")
            for number in (1, 2):
                builder = CompositeMessageBuilder().append(f'{{"id":{number}}}').append(b"\xff\0")
                client.publish("t", builder.set_payload(b"rest").get_data())
            message = stream.get(20)
            assert message is not None
            parser = CompositeMessageParser()
            assert parser.parse(message, parts=2) == 2
            assert (parser.parts, parser.payload) == ((b'{"id":2}', b"\xff\0"), b"rest")


def test_login_names_are_part_of_the_connection_string(shared: Server) -> None:
    port = shared.port()
    assert shared.uri("fix", user="u", password="p") == f"tcp://u:p@127.0.0.1:{port}/amps/fix"
    assert shared.uri(user="u") == f"tcp://u@127.0.0.1:{port}/amps/json"


def test_a_server_that_refuses_to_start_shows_why_and_leaves_nothing() -> None:
    server = Server(extra_config="<Nonsense/>")
    with pytest.raises(ServerConfigurationError, match=r"config.xml:\d+: .*Nonsense"):
        server.start()
    directory = server.directory
    server.close()
    assert not directory.exists()


def test_the_first_error_removes_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`with` does not call __exit__ after a start that failed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ServerError), Server(extra_config="<Nonsense/>"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"topics": "t"}, "lists of names"),
        ({"queues": "q"}, "lists of names"),
        ({"queues": ["q"], "topics": []}, "need recorded topics"),
        ({"configuration": "<AMPSConfig/>", "queues": ["q"]}, "whole configuration"),
        ({"configuration": "<AMPSConfig/>", "sow": {"t": "/id"}}, "whole configuration"),
        ({"sow": ["t"]}, "the keys of each topic"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        Server(**arguments)  # type: ignore[arg-type]


def test_only_the_topics_given_are_recorded() -> None:
    with Server(topics=[("^log/", "json")]) as server, Client("a", server.uri()) as client:
        client.bookmark_subscribe("log/x", EPOCH).close()
        with pytest.raises(InvalidTopicException):
            client.bookmark_subscribe("other", EPOCH)
    with Server(topics=[]) as server:
        assert not (server.directory / "journal").exists()


def test_a_process_that_died_is_an_error_of_stop() -> None:
    with Server() as server:
        pid = first_pid(server)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ServerError, match="exit code -9"):
            server.stop()
        assert processes_of(pid) == []


def test_a_missing_server_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "amps.server" else find(name, *rest)
    )
    with pytest.raises(ServerError, match="pip install amps-server"):
        Server().start()


def test_the_server_ends_with_the_tests_that_started_it() -> None:
    """A test process that is killed runs no code that could end its server."""
    code = (
        "import os, signal, amps\n"
        "server = amps.Server().start()\nprint(server._process.pid, server.directory, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    session, directory = done.stdout.split()
    wait_until(lambda: not processes_of(int(session)), 30, "the server outlives the tests")
    wait_until(lambda: not Path(directory).exists(), 30, "the directory outlives the tests")
    wait_until(lambda: not list(RUNTIME_BASE.glob(f"amps-run-{session}-*")), 30, "files in memory are left")


def test_a_server_that_a_thread_started_outlives_the_thread() -> None:
    server = Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        time.sleep(0.2)  # a death signal would have been sent at the end of the thread
        with Client("a", server.uri()) as client:
            client.publish("t", "1")
            client.flush()
    finally:
        server.close()


def test_a_lost_starter_is_replaced_and_its_servers_end() -> None:
    with Server() as first:
        starter = psutil.Process(first_pid(first)).ppid()
        assert starter != os.getpid()
        os.kill(starter, signal.SIGKILL)
        wait_until(lambda: not first.running, 30, "the loss has not been noticed")
        with pytest.raises(ServerError, match="exit code 255"):
            first.stop()
        with Server() as second, Client("a", second.uri()) as client:
            client.publish("t", "1")
            client.flush()
            assert psutil.Process(first_pid(second)).ppid() != starter
        first.start()
        assert first.running


def test_a_forked_child_has_servers_of_its_own() -> None:
    with Server() as server:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Server() as other:
                    parents = {psutil.Process(first_pid(each)).ppid() for each in (server, other)}
                    code = 0 if len(parents) == 2 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with Client("a", server.uri()) as client:
            client.publish("t", "1")
            client.flush()


def test_a_forked_child_does_not_end_its_parents_server() -> None:
    with Server() as server:
        child = os.fork()
        if child == 0:
            try:
                server.kill()
                server.stop()
                server.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert server.directory.exists()
        with Client("a", server.uri()) as client:
            client.flush()


def test_the_environment_of_the_test_is_that_of_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may change between two starts, although both servers come from one process."""
    for name in ("a", "b"):
        runtime = tmp_path / name
        runtime.mkdir()
        monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(runtime))
        with Server():
            assert len(list(runtime.iterdir())) == 1
        assert list(runtime.iterdir()) == []


def test_a_reserved_port_is_given_to_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ReservedPort()
    numbers = iter([first.number, first.number, first.number + 1])
    monkeypatch.setattr("random.randint", lambda *bounds: next(numbers))
    with contextlib.suppress(StopIteration):  # the next port may be in use
        second = ReservedPort()
        assert second.number != first.number
        second.release()
    first.release()


def test_a_port_of_the_tests_is_given_to_no_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites of this project and of an application may run on one host."""
    number = reserve_port()
    monkeypatch.setattr("random.randint", lambda *bounds: number)
    with pytest.raises(OSError, match="no free TCP port"):
        ReservedPort()
    release_port(number)
    port = ReservedPort()
    with pytest.raises(OSError, match="no free TCP port"):
        reserve_port()
    port.release()
