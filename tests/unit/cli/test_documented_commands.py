"""Publishing and ping as documented (client.md §21, 66 and 68); `test_queries` and `test_with_server` have 67."""

import datetime
import re
import socket
import threading
import zipfile
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.peer import RawClient
from tests.support.ports import release_port, reserve_port
from tests.support.server import StartServer, Transport
from tests.unit.cli.running import run, server_option
from tests.unit.cli.test_with_server import logged


def test_client_66_publish_reads_lines_delimiters_rates_and_archives(
    start_server: StartServer, tmp_path: Path
) -> None:
    """client.md §21, 66: three lines; `-delimiter 59`; `-rate 2`; a ZIP with the entries 1, 2, 3."""
    server = start_server(log_topics=[".*"])
    ended = re.compile(rb"total messages published: 3 \(\d+\.\d\d/s\)\n")

    done = run("publish", *server_option(server), "-topic", "orders", "-type", "json", stdin=b"1\n2\n3\n")
    assert (done.returncode, ended.fullmatch(done.stdout) is not None) == (0, True), done
    assert logged(server, "orders") == [b"1", b"2", b"3"]

    done = run("publish", *server_option(server), "-topic", "semicolons", "-delimiter", "59", stdin=b"a\n;b;c")
    assert (done.returncode, ended.fullmatch(done.stdout) is not None) == (0, True), done
    assert logged(server, "semicolons") == [b"a\n", b"b", b"c"]

    done = run("publish", *server_option(server), "-topic", "slow", "-rate", "2", stdin=b"1\n2\n3\n")
    assert (done.returncode, ended.fullmatch(done.stdout) is not None) == (0, True), done
    with RawClient.tcp(server.port()) as client:
        client.logon("reader")
        client.subscribe("slow", "s", bm="0", o="timestamp")
        times = [
            datetime.datetime.strptime(str(message["ts"]), "%Y%m%dT%H%M%S.%fZ")
            for message in client.receive_published(3)
        ]
    assert (times[2] - times[0]).total_seconds() > 0.6  # a second, unless the first message was delayed

    with zipfile.ZipFile(tmp_path / "dump.zip", "w") as archive:
        for name in ("3", "1", "2"):
            archive.writestr(name, f"entry\n{name}")
    done = run("publish", *server_option(server), "-topic", "archive", "-file", tmp_path / "dump.zip")
    assert (done.returncode, ended.fullmatch(done.stdout) is not None) == (0, True), done
    assert logged(server, "archive") == [b"entry\n1", b"entry\n2", b"entry\n3"]


def test_client_68_ping(start_server: StartServer, authority: Authority) -> None:
    """client.md §21, 68: success and exit status; a closed port; `-secure yes` is TLS, and `-urischeme` beats it."""
    issued = authority.issue("localhost")
    xml = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    server = start_server(transports=[Transport(), Transport("tls", "tcps", host="localhost", extra_xml=xml)])
    plain, tls = f"ana@127.0.0.1:{server.port()}", f"ana@localhost:{server.port('tls')}"

    done = run("ping", "-server", plain)
    assert (done.returncode, done.stdout.decode()) == (0, f"Successfully connected to tcp://{plain}/amps/json\n")

    closed = reserve_port()
    try:
        done = run("ping", "-server", f"127.0.0.1:{closed}")
    finally:
        release_port(closed)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Unable to connect to AMPS (ConnectionRefusedException: ")

    secure = ("-secure", "yes", "-ca-file", authority.certificate)
    done = run("ping", "-server", tls, *secure)
    assert (done.returncode, done.stdout.decode()) == (0, f"Successfully connected to tcps://{tls}/amps/json\n")
    assert run("ping", "-server", plain, *secure, "-timeout", "5").returncode == 1
    done = run("ping", "-server", plain, "-secure", "yes", "-urischeme", "tcp")
    assert (done.returncode, done.stdout.decode()) == (0, f"Successfully connected to tcp://{plain}/amps/json\n")


def test_client_68_secure_begins_with_a_handshake() -> None:
    """client.md §21, 68: the first bytes that the server gets are those of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        port = listener.getsockname()[1]
        first: list[bytes] = []

        def accept() -> None:
            accepted, _ = listener.accept()
            with accepted:
                first.append(accepted.recv(3))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        assert run("ping", "-server", f"127.0.0.1:{port}", "-secure", "1", "-timeout", "5").returncode == 1
        thread.join(60)
    assert first[0][:2] == b"\x16\x03"
