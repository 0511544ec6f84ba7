"""The parts of `amps top` without a server: values, keys, and interfaces that do not answer as they should."""

import base64
import contextlib
import http.server
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from rich.console import Console

from amps.cli.contexts import Contexts
from amps.cli.settings import resolve
from amps.cli.top import interface
from amps.cli.top.command import interface_of
from amps.cli.top.interface import AdminFailure, AdminInterface
from amps.cli.top.live import handle
from amps.cli.top.state import VIEWS, Consumers, read_values, sorted_rows
from amps.cli.top.terminal import HUNG_UP, split_keys
from amps.cli.top.view import Choice, age, screen, write_once


def queue(name: str, depth: int) -> dict[str, str]:
    return {"id": f"{name}!json", "topic": name, "message_type": "json", "queue_depth": str(depth)}


def values(pid: int, entered: int, left: int) -> dict[str, Any]:
    counts = {"id": "Q!json", "insert_count": str(entered), "delete_count": str(left)}
    return {"name": "n", "pid": str(pid), "queues": [queue("Q", entered - left)], "sow": [counts]}


def test_rates_are_those_between_two_readings() -> None:
    first = read_values(values(1, 100, 90), 10.0)
    second = read_values(values(1, 150, 91), 12.0, first)
    assert [(row["in_per_s"], row["out_per_s"]) for row in first.queues] == [(None, None)]
    assert [(row["in_per_s"], row["out_per_s"]) for row in second.queues] == [(25.0, 0.5)]


def test_after_a_restart_there_is_no_rate() -> None:
    first = read_values(values(1, 100, 90), 10.0)
    for restarted in (values(2, 500, 90), values(1, 5, 2)):
        (row,) = read_values(restarted, 12.0, first).queues
        assert (row["in_per_s"], row["out_per_s"]) == (None, None)
    again = read_values(values(2, 7, 2), 13.0, read_values(values(2, 5, 2), 12.0, first))
    assert again.queues[0]["in_per_s"] == 2.0


def test_transactions_of_queues_have_columns() -> None:
    """queue_guarantees.md Q-60: empty for a queue that had none."""
    counts = {"transactions": "12", "transactions_lease_lost": "3", "transactions_refused": "0"}
    used, other = read_values({"queues": [queue("Q", 1) | counts, queue("R", 1)]}, 0.0).queues
    assert [used[name] for name in counts] == [12, 3, 0]
    assert [other[name] for name in counts] == [None] * 3
    assert counts.keys() <= set(VIEWS["queues"])


def test_destinations_of_replication_are_shown_if_there_are_any() -> None:
    """replication.md §17: the figures are those of the administration interface."""
    metrics = {
        "id": "0",
        "name": "west",
        "destination_name": "w-1",
        "is_connected": "1",
        "replication_type": "sync",
        "seconds_behind": "2.5",
        "messages_out_per_sec": "31.25",
        "disconnect_count": "4",
    }
    lost = metrics | {"id": "1", "name": "north", "is_connected": "0", "replication_type": "async"}
    reading = read_values({"replication": [metrics, lost]}, 0.0)
    assert reading.destinations == [
        {
            "destination": "west",
            "instance": "w-1",
            "mode": "sync",
            "connected": "yes",
            "behind_s": 2.5,
            "messages_per_s": 31.25,
            "disconnects": 4,
        },
        reading.destinations[1],
    ]
    assert (reading.destinations[1]["connected"], reading.destinations[1]["mode"]) == ("no", "async")
    assert reading.as_json()["destinations"] == reading.destinations
    for shown, has in ((reading, True), (read_values({}, 0.0), False)):
        console = Console(width=160, file=io.StringIO(), record=True)
        write_once(console, shown, list(VIEWS))
        text = console.export_text()
        assert ("destinations" in text) == has
        assert ("messages/s" in text and "31.2" in text) == has
        console.print(screen(shown, Choice(), None, "", 20))
        assert ("5 destinations" in console.export_text()) == has
        write_once(console, shown, ["destinations"])
        assert "messages/s" in console.export_text(), "it was asked for"
    choice = Choice()
    handle("5", choice, 10)
    assert choice.view == "destinations"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"queues": None, "subscriptions": "x", "sow": {}, "transaction_log": 1, "pid": "x"},
        {"queues": [None, {}, {"id": "Q"}], "subscriptions": [{"id": "1"}], "sow": [{"id": "Q", "insert_count": "-"}]},
        {"transaction_log": {"journals": "x", "file_system_free_percent": "", "write_latency": {"maximum": "?"}}},
    ],
)
def test_missing_and_odd_values_are_shown_as_unknown(odd: dict[str, Any]) -> None:
    reading = read_values(odd, 0.0)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for view in VIEWS:
        choice = Choice()
        choice.show(view)
        console.print(screen(reading, choice, None, "", 20))


def test_consumers_match_by_name_expression_and_type() -> None:
    rows = [
        {"topic": topic, "type": message_type, "options": text}
        for topic, message_type, text in (
            ("Q.a", "json", "max_backlog=3"),
            ("^Q", "json", "timestamp,max_backlog=1"),
            ("^Q", "json", ""),
            ("Q.a", "fix", "max_backlog=3"),
            ("^R", "json", "max_backlog=3"),
            ("(", "json", "max_backlog=3"),
        )
    ]
    consumers = Consumers(rows)
    assert [consumers.of(name, "json") for name in ("Q.a", "Q.b", "x")] == [2, 1, 0]
    assert consumers.of("Q.a", "fix") == 1


def test_unknown_values_come_last_in_any_order() -> None:
    rows = [{"n": value} for value in (2, None, 3, 1)]
    assert [row["n"] for row in sorted_rows(rows, "n", False)] == [1, 2, 3, None]
    assert [row["n"] for row in sorted_rows(rows, "n", True)] == [3, 2, 1, None]


def test_keys() -> None:
    assert split_keys(b"q\x1b[A\x1b[Bs\x1b[6~\x1bOB") == ["q", "up", "down", "s", "page down", "down"]
    assert split_keys(b"a\x1b[1;5Cq") == ["a"]
    choice = Choice()
    for key in ("x", "4", "s", "r", "p"):
        assert handle(key, choice, 10)
    assert (choice.view, choice.paused) == ("topics", True)
    assert (choice.sort["topics"], choice.reverse["topics"]) == ("type", True)
    for key, offset in (("j", 1), ("page down", 11), ("up", 10), ("page up", 0), ("k", 0)):
        handle(key, choice, 10)
        assert choice.offset == offset
    for _ in VIEWS:
        handle("\t", choice, 10)
    assert choice.view == "topics"
    for column in VIEWS["topics"]:
        handle("s", choice, 10)
        assert column
    assert choice.sort["topics"] == "type"
    assert not handle("q", choice, 10)
    assert not handle(HUNG_UP, choice, 10)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3661, "1h01m"), (90_000, "1d01h")],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("address", "url", "user", "password"),
    [
        ("h", "http://h:8085", "", None),
        ("h:1", "http://h:1", "", None),
        ("https://a%40b:p%3Aq@h:1/base/", "https://h:1/base", "a@b", "p:q"),
        ("http://[::1]:9", "http://[::1]:9", "", None),
    ],
)
def test_addresses(address: str, url: str, user: str, password: str | None) -> None:
    found = AdminInterface.parse(address)
    assert (found.url, found.user, found.password) == (url, user, password)


@pytest.mark.parametrize("address", ["", "http://", "ftp://h:1", "u:secret@h:port", "h:99999", "http://h/?x=1", "[h"])
def test_malformed_addresses_are_wrong_usage(address: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        AdminInterface.parse(address)
    assert "secret" not in caught.value.message


Handler = type[http.server.BaseHTTPRequestHandler]


@contextlib.contextmanager
def serving(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[AdminInterface]:
    """An interface that answers each request by a function."""

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield AdminInterface.parse(f"http://ana:p%C3%A4ss@127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def answering(status: int, body: bytes) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def test_the_password_is_sent() -> None:
    seen: list[str | None] = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Authorization"])
        answering(200, b'{"amps":{"instance":{"name":"n"}}}')(request)

    with serving(answer) as admin:
        assert admin.read() == {"name": "n"}
    assert seen == ["Basic " + base64.b64encode("ana:päss".encode()).decode()]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"<html>", "is no administration interface of such a server"),
        (200, b'{"amps":{"instance":[]}}', "is no administration interface of such a server"),
        (200, b"[" * 100_000, "is no administration interface of such a server"),
        (401, b"missing\nmore", "refuses user 'ana' (401: missing): check the user"),
        (404, b"there is no such resource", "answers 404: there is no such resource"),
        (302, b"", "answers 302"),
    ],
)
def test_other_answers_are_named(status: int, body: bytes, told: str) -> None:
    with serving(answering(status, body)) as admin, pytest.raises(AdminFailure) as caught:
        admin.read()
    assert told in caught.value.message
    assert "päss" not in caught.value.message


def test_a_server_that_never_ends_its_answer_does_not_hang_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends a byte now and then, so that no single read takes too long."""
    monkeypatch.setattr(interface, "ANSWER_WAIT_S", 1.0)

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(600):
            request.wfile.write(b" ")
            request.wfile.flush()
            time.sleep(0.1)

    with serving(answer) as admin, pytest.raises(AdminFailure) as caught:
        admin.read()
    assert "the answer takes longer than 1 s" in caught.value.message


def test_a_server_that_never_ends_its_headers_does_not_hang_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies to the whole answer, not to its body only."""
    monkeypatch.setattr(interface, "ANSWER_WAIT_S", 0.5)

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(50):  # no more than the client's limit of headers
            request.wfile.write(b"X: a\r\n")
            request.wfile.flush()
            time.sleep(0.1)

    with serving(answer) as admin, pytest.raises(AdminFailure) as caught:
        admin.read()
    assert "the answer takes longer than 0.5 s" in caught.value.message


def test_a_hostile_interface_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 404 \x1b]0;pwned\x07\r\nContent-Length: 5\r\n\r\n\x1b[31m")

    with serving(answer) as admin, pytest.raises(AdminFailure) as caught:
        admin.read()
    caught.value.show()
    told = capsys.readouterr().err
    assert "\\x1b[31m" in told
    assert "\x1b" not in told


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "CALL_WAIT_S", 0.3)
    over = threading.Event()
    with serving(lambda request: over.wait(60) and None) as admin:
        with pytest.raises(AdminFailure) as caught:
            admin.read()
        over.set()
    assert "timed out" in caught.value.message


def test_an_endless_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "ANSWER_BYTES_MAX", 1000)
    with serving(answering(200, b" " * 5000)) as admin, pytest.raises(AdminFailure) as caught:
        admin.read()
    assert "more than 1000 bytes" in caught.value.message


def test_credentials_of_a_context_are_sent_to_its_interface_only(tmp_path: Any) -> None:
    path = tmp_path / "contexts.toml"
    context = {"admin": "http://h:1", "user": "u", "password": "p"}
    path.write_text(Contexts(path, "c", {"c": context}).to_toml())
    path.chmod(0o600)
    own = interface_of(resolve({}, environment={}, path=path))
    assert (own.url, own.user, own.password) == ("http://h:1", "u", "p")
    other = interface_of(resolve({"admin": "http://h:2"}, environment={}, path=path))
    assert (other.url, other.user, other.password) == ("http://h:2", "", None)
    given = interface_of(resolve({"admin": "h:2"}, environment={"AMPS_PASSWORD": "q"}, path=path))
    assert (given.user, given.password) == ("", "q")
    nothing = interface_of(resolve({}, environment={}, path=tmp_path / "none"))
    assert nothing.url == "http://localhost:8085"
