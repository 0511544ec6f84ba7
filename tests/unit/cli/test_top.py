"""`amps top` against running servers, in a terminal."""

import http.server
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from amps.client import Client
from tests.support.certificates import Authority
from tests.support.ports import release_port, reserve_port
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer, module_xml, wait_until
from tests.support.terminal import Terminal
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment, run
from tests.unit.cli.test_top_parts import answering, serving

KEYS = "q quit"


class Watched:
    """A server with an administration interface and a queue."""

    def __init__(self, server: ServerProcess, admin_port: int) -> None:
        self.server = server
        self.admin_port = admin_port

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.server.port()}/amps/json"

    def once(self, *arguments: str) -> Any:
        done = run("top", "-admin", f"localhost:{self.admin_port}", "-once", "-output", "json", *arguments)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def terminal(self, *arguments: str, **size: int) -> Terminal:
        command = [*COMMAND, "top", "-admin", f"localhost:{self.admin_port}", "-interval", ".2", *arguments]
        return Terminal(command, environment(), **size)


@pytest.fixture
def admin_port() -> Iterator[int]:
    port = reserve_port()
    yield port
    release_port(port)


@pytest.fixture
def watched(start_server: StartServer, admin_port: int) -> Watched:
    given = options(queue_xml("Q", "T"), queue_xml("empty", "T2"))
    given["instance_xml"] += f"<Admin><InetAddr>{admin_port}</InetAddr></Admin>"
    return Watched(start_server(**given), admin_port)


def shows(*texts: str) -> Any:
    """A condition for a whole screen with these texts."""
    return lambda screen: KEYS in screen and all(text in screen for text in texts)


def test_once_has_the_values_for_scripts(watched: Watched) -> None:
    with Client("worker", watched.uri) as worker, Client("reader", watched.uri) as reader:
        streams = [  # a stream that is dropped ends its subscription
            worker.subscribe("Q", max_backlog=3),
            worker.subscribe("^(Q|none)$", max_backlog=2),
            reader.subscribe("plain"),
            reader.subscribe("T", "/id = 2", bookmark="0"),
        ]
        for n in range(9):
            worker.publish("T", {"id": n})
        worker.flush()
        wait_until(lambda: watched.once()["queues"][0]["leased"] == 5, TIMEOUT_S, "nothing is leased")
        found = watched.once()
        assert found["instance"]["name"] == "Test"
        assert found["instance"]["pid"] == watched.server.process.pid  # type: ignore[union-attr]
        by_name = {row["queue"]: row for row in found["queues"]}
        assert {
            "type": "json", "depth": 9, "consumers": 2, "leased": 5, "entered": 9, "left": 0, "in_per_s": None,
        }.items() <= by_name["Q"].items()  # fmt: skip
        assert (by_name["empty"]["depth"], by_name["empty"]["consumers"]) == (0, 0)
        assert [(row["client"], row["subscriptions"], row["topics"], row["backlog"]) for row in found["clients"]] == [
            ("reader", 2, 2, 0), ("worker", 2, 2, 5),
        ]  # fmt: skip
        assert len(found["subscriptions"]) == len(streams)
        replay = next(row for row in found["subscriptions"] if row["bookmark"])
        assert (replay["client"], replay["topic"], replay["bookmark"]) == ("reader", "T", "0")
        topics = {row["topic"]: row for row in found["topics"]}
        assert (topics["Q"]["subscriptions"], topics["Q"]["depth"]) == (1, 9)
        assert (topics["plain"]["clients"], topics["plain"]["depth"]) == (1, None)
        assert watched.once("-view", "clients") == found["clients"]
        text = run("top", "-admin", f"localhost:{watched.admin_port}", "-once").stdout.decode()
        assert all(f"\n{view}\n" in text for view in ("queues", "clients", "subscriptions", "topics"))


def test_the_live_view_follows_the_server(watched: Watched) -> None:
    with watched.terminal() as terminal, Client("worker", watched.uri) as worker:
        terminal.wait_for(shows("Q ", "empty"), "the queues are not shown")
        for n in range(7):
            worker.publish("T", {"id": n})
        screen = terminal.wait_for(
            lambda text: KEYS in text and any(line.split()[:3] == ["Q", "json", "7"] for line in text.splitlines()),
            "the depth is not shown",
        )
        lines = screen.splitlines()
        # Sorted by depth, the largest first.
        assert [line.split()[0] for line in lines if " json " in line] == ["Q", "empty"]
        stream = worker.subscribe("Q", max_backlog=2)
        terminal.press("2")
        terminal.wait_for(shows("client ", "worker", "backlog ▼"), "clients are not shown")
        terminal.press("3")
        terminal.wait_for(shows("sub id", "max_backlog=2"), "subscriptions are not shown")
        stream.close()
        terminal.press("\t")
        terminal.wait_for(shows("replays", "topic ▲"), "topics are not shown")
        terminal.press("s")
        terminal.wait_for(shows("type ▲"), "the order did not change")
        terminal.press("r")
        terminal.wait_for(shows("type ▼"), "the order was not reversed")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.settings == terminal.initial
        assert terminal.output.endswith(b"\x1b[?1049l")  # the alternate screen is left


def test_pausing_keeps_the_values(watched: Watched) -> None:
    with watched.terminal() as terminal, Client("worker", watched.uri) as worker:
        terminal.wait_for(shows("Q "), "the queues are not shown")
        terminal.press("p")
        terminal.wait_for(shows("PAUSED"), "not paused")
        worker.publish("T", b"{}")
        wait_until(lambda: watched.once()["queues"][0]["depth"] == 1, TIMEOUT_S, "not in the queue")
        screen = terminal.wait_for(
            lambda text: shows("PAUSED")(text) and re.search(r"values ([2-9]|\d\d+) s old", text) is not None,
            "the age is not shown",
        )
        assert re.search(r"Q +json +0 ", screen)
        terminal.press(" ")
        terminal.wait_for(
            lambda text: KEYS in text and re.search(r"Q +json +1 ", text) is not None, "does not continue"
        )
        terminal.press("q")
        assert terminal.end() == 0


def test_the_view_fits_the_terminal_after_each_resizing(watched: Watched) -> None:
    clients = [Client(f"client-{n:02}", watched.uri).open() for n in range(20)]
    try:
        streams = [client.subscribe("t") for client in clients]
        assert len(streams) == 20
        with watched.terminal("-view", "clients") as terminal:
            terminal.wait_for(shows("client-00", "client-19"), "clients are not shown")
            for lines, columns, rows in ((12, 60, 7), (40, 200, 20), (5, 20, 0), (12, 50, 7)):
                terminal.resize(lines, columns)

                def fits(screen: str, lines: int = lines, columns: int = columns, rows: int = rows) -> bool:
                    # Several screens may be there; the last one is complete when its last line is.
                    shown = screen.split("\n")
                    return (
                        len(shown) == lines
                        and ("of 20" in shown[-1] or "20 rows" in shown[-1])
                        and all(len(line) <= columns for line in shown)
                        and sum("client-" in line for line in shown) == rows
                    )

                terminal.wait_for(fits, f"the view does not fit {lines} lines of {columns} characters")
            terminal.press("\x1b[6~")
            terminal.wait_for(lambda text: KEYS in text and "8-14 of 20" in text, "the rows do not scroll")
            terminal.press("k")
            terminal.wait_for(lambda text: KEYS in text and "7-13 of 20" in text, "the rows do not scroll back")
            terminal.press("q")
            assert terminal.end() == 0
    finally:
        for client in clients:
            client.close()


def test_the_view_survives_a_restart_of_the_server(watched: Watched) -> None:
    with watched.terminal() as terminal:
        terminal.wait_for(shows("Q ", f"pid {watched.server.process.pid}"), "not shown")  # type: ignore[union-attr]
        watched.server.kill_all()
        screen = terminal.wait_for(shows("no administration interface answers"), "the failure is not shown")
        assert "Q " in screen  # the last values stay
        watched.server.start()
        with Client("worker", watched.uri) as worker:
            worker.publish("T", b"{}")
            pid = watched.server.process.pid  # type: ignore[union-attr]
            terminal.wait_for(
                lambda text: shows(f"pid {pid}")(text) and re.search(r"Q +json +1 ", text) is not None,
                "the new values are not shown",
            )
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_view_and_restore_the_terminal(watched: Watched, signal_number: int) -> None:
    with watched.terminal() as terminal:
        terminal.wait_for(shows("Q "), "not shown")
        assert terminal.settings != terminal.initial
        if signal_number == signal.SIGINT:
            terminal.interrupt()
            assert terminal.end() == 0
        else:
            assert terminal.end(signal_number) == 128 + signal_number
        assert terminal.settings == terminal.initial
        assert terminal.output.endswith(b"\x1b[?1049l")


def test_without_an_administration_interface_the_cause_is_named(admin_port: int) -> None:
    done = run("top", "-admin", f"localhost:{admin_port}", "-once")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == (
        f"error: no administration interface answers at http://localhost:{admin_port} (Connection refused): is the "
        f"server running, and does its configuration have <Admin><InetAddr>{admin_port}</InetAddr></Admin>?\n"
    )
    with Terminal([*COMMAND, "top", "-admin", f"localhost:{admin_port}"], environment()) as terminal:
        assert terminal.end() == 1
        assert b"no administration interface answers" in terminal.output
        assert b"\x1b[?1049h" not in terminal.output


def test_another_port_is_no_administration_interface(start_server: StartServer) -> None:
    """The port of a transport, which is mistaken for that of the interface most easily."""
    port = start_server().port()
    done = run("top", "-admin", f"localhost:{port}", "-once")
    assert done.returncode == 1
    assert f"error: http://localhost:{port} answers 426: This port takes frames" in done.stderr.decode()


def test_users_and_certificates(start_server: StartServer, admin_port: int, authority: Authority) -> None:
    """Over TLS, for an interface that needs a user."""
    issued = authority.issue("localhost")
    access = module_xml("Authentication", "amps-default-authentication-module", RequireUsername="true")
    tls = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    start_server(instance_xml=f"<Admin><InetAddr>{admin_port}</InetAddr>{access}{tls}</Admin>")
    where = ("-admin", f"https://localhost:{admin_port}", "-once", "-output", "json")
    trusted = (*where, "-ca-file", authority.certificate)
    done = run("top", *trusted, "-user", "ana")
    assert done.returncode == 0, done.stderr.decode()
    done = run("top", *trusted)
    assert (done.returncode, b"refuses user '' (401" in done.stderr) == (1, True), done.stderr
    done = run("top", *where)
    assert (done.returncode, b"no encrypted connection" in done.stderr) == (1, True), done.stderr


def test_the_live_view_needs_a_terminal() -> None:
    for arguments in ((), ("-output", "json")):
        done = run("top", "-admin", "localhost:1", *arguments)
        assert (done.returncode, b"-once" in done.stderr) == (2, True)


def test_a_closed_terminal_ends_the_view(watched: Watched) -> None:
    process: subprocess.Popen[bytes]
    with watched.terminal() as terminal:
        terminal.wait_for(shows("Q "), "not shown")
        process = terminal.process
        terminal.hang_up()
        assert process.wait(TIMEOUT_S) in (0, 128 + signal.SIGHUP)  # it sees the signal or the end first


def test_keys_work_while_the_server_does_not_answer() -> None:
    """The interface answers once and then hangs: the view changes, shows the age of its values, and ends at once."""
    asked = threading.Event()
    over = threading.Event()
    body = b'{"amps":{"instance":{"name":"hanging","queues":[]}}}'

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        if asked.is_set():
            over.wait(TIMEOUT_S)
        asked.set()
        answering(200, body)(request)

    with serving(answer) as admin:
        command = [*COMMAND, "top", "-admin", admin.url, "-interval", ".1"]
        with Terminal(command, environment()) as terminal:
            terminal.wait_for(shows("hanging", "depth ▼"), "not shown")
            terminal.press("2")
            terminal.wait_for(shows("backlog ▼", "s old"), "the view does not change, or has no age")
            terminal.press("q")
            assert terminal.end() == 0
            assert terminal.settings == terminal.initial
        over.set()
