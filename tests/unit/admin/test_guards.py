"""Limits on connections of the administration interface: slow clients, too many connections, malformed requests."""

import random
import socket
import time
from collections.abc import Callable

import pytest

from amps.server.admin import guards
from tests.support.admin import AdminFixture, journal
from tests.support.services import action, echo, on

StartAdmin = Callable[..., AdminFixture]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_request_that_does_not_arrive_is_not_waited_for(
    start_admin: StartAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "REQUEST_WAIT_S", 0.3)
    admin = start_admin()
    with socket.create_connection(("127.0.0.1", admin.port)) as silent:
        with socket.create_connection(("127.0.0.1", admin.port)) as slow:
            silent.settimeout(20)
            slow.settimeout(20)
            slow.sendall(b"GET /amps HTTP/1.1\r\nHo")
            assert is_closed(slow)
        assert is_closed(silent)
    assert "the request did not come in time" in admin.log.texts("19-0004")[0]
    assert admin.get("/amps").status == 200


def test_an_answer_that_is_not_read_is_not_waited_for(
    start_admin: StartAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "ANSWER_WAIT_S", 0.5)
    admin = start_admin()

    # The answer exceeds the buffers of the kernel: many journals with long, different names.
    def large(verb: str, rest: list[object]) -> list[list[object]]:
        parts = [["more", [journal(n, path=f"/{'y' * 5000}{n}.{m}") for n in range(4)]] for m in range(1000)]
        return [*parts, ["ok", []]]

    admin.core._answer = large  # type: ignore[assignment]
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", admin.port))
        slow.sendall(b"GET /amps/instance.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until_s = time.monotonic() + 20
        while not admin.log.texts("19-0004") and time.monotonic() < until_s:
            time.sleep(0.05)
    assert "the answer was not taken in time" in admin.log.texts("19-0004")[0]


def test_too_many_connections_are_closed(start_admin: StartAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "CONNECTIONS_MAX", 3)
    admin = start_admin()
    idle = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(3)]
    try:
        until_s = time.monotonic() + 20
        with socket.create_connection(("127.0.0.1", admin.port)) as one_more:
            one_more.settimeout(20)
            assert is_closed(one_more)
        assert "there are 3 connections already" in admin.log.texts("19-0004")[0]
    finally:
        for connection in idle:
            connection.close()
    while time.monotonic() < until_s:
        try:
            if admin.get("/amps").status == 200:
                return
        except (ConnectionError, OSError):
            time.sleep(0.05)
    raise AssertionError("nobody is served when there is room again")


def test_a_request_that_is_not_http_is_answered_and_closed(start_admin: StartAdmin) -> None:
    admin = start_admin()
    with socket.create_connection(("127.0.0.1", admin.port)) as connection:
        connection.settimeout(20)
        connection.sendall(b"\x00\x00\x00\x10garbage garbage!\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 400")
    assert admin.get("/amps").status == 200


def test_one_connection_has_one_request(start_admin: StartAdmin) -> None:
    admin = start_admin()
    with socket.create_connection(("127.0.0.1", admin.port)) as connection:
        connection.settimeout(20)
        connection.sendall(b"GET /amps/instance/name HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        received = b""
        while data := connection.recv(4096):
            received += data
    assert received.count(b"HTTP/1.1 200") == 1


def test_any_bytes_are_answered(start_admin: StartAdmin) -> None:
    """Arbitrary bytes cause neither an internal error nor a change."""
    admin = start_admin(journals=[journal(1)], actions_xml=action(on("admin", Path="p"), echo("x")))
    chance = random.Random(7)
    pieces = [
        b"/amps",
        b"/instance",
        b"/journals",
        b".json",
        b"%2F",
        b"%",
        b"?",
        b"&",
        b"=",
        b"\xff",
        b"//",
        b" ",
        b"\x00",
    ]
    pieces += [
        b"/transaction_log",
        b"/administrator",
        b"%c3%28",
        b"#",
        b"{{",
        b"http://a",
        b":",
        b"\t",
        b"/..",
    ]
    for _ in range(300):
        path = b"".join(chance.choices(pieces, k=chance.randrange(1, 8)))
        with socket.create_connection(("127.0.0.1", admin.port)) as connection:
            connection.settimeout(20)
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = connection.recv(200)
        assert answer[:5] == b"HTTP/", path
        assert int(answer.split()[1]) in (200, 302, 400, 404, 421), (path, answer)
    assert not admin.log.texts("01-0005")
    assert not admin.log.texts("29-0001")
