"""The event log as operators see it: operations.md §6 and the behaviours 45 to 49 of §13."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, do, on

REPOSITORY = Path(__file__).resolve().parents[2]

RECORD = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}[+-]\d\d:\d\d \[\d+\] "
    r"(developer|trace|stats|info|warning|error|critical|emergency): ([0-9A-F]{2}-[0-9A-F]{4}) "
)


def target(name: str, **elements: str) -> str:
    """A file target in the server's directory."""
    elements = {"Protocol": "file", "FileName": name, **elements}
    return "<Target>" + "".join(f"<{key}>{value}</{key}>" for key, value in elements.items()) + "</Target>"


def start(make_server: StartServer, *targets: str, instance_xml: str = "") -> ServerProcess:
    """A server that also logs to its standard output, where the test finds the ready line."""
    server = make_server(instance_xml=instance_xml)
    xml = server.config_xml().replace("</Logging>", "".join(targets) + "</Logging>")
    server._config_xml = xml
    return server.start()


def some_work(peers: Peers, server: ServerProcess, messages: int = 5) -> None:
    """A logon, a subscription, publishes, a failed command and a disconnect."""
    client = peers.logged_on(server, x="CorrelationId42")
    client.subscribe("t", "s")
    for number in range(messages):
        client.publish("t", b'{"n":%d}' % number)
    client.receive_published(messages)
    client.try_subscribe("(", "bad")
    client.close()


def records(path: Path) -> list[tuple[str, str]]:
    """Level and id of each record of a file."""
    matches = [RECORD.match(line) for line in path.read_text().splitlines()]
    return [(match[1], match[2]) for match in matches if match]


def test_operations_45_levels(make_server: StartServer, peers: Peers) -> None:
    """operations.md §13 45"""
    server = start(
        make_server,
        target("exact.log", Levels="trace,info"),
        target("mixed.log", Levels="trace, info", Level="error"),
        target("debug.log", Level="debug"),
        target("info.log", Level="info"),
        target("nothing.log"),
        target("none.log", Level="none"),
        target("everything.log", Level="developer"),
    )
    some_work(peers, server)
    server.stop()
    directory = server.directory
    everything = records(directory / "everything.log")
    assert {"trace", "info"} <= {level for level, _ in everything}
    for name, levels in (
        ("exact.log", {"trace", "info"}),
        ("mixed.log", {"trace", "info", "error", "critical", "emergency"}),
        ("debug.log", {"info", "warning", "error", "critical", "emergency"}),
        ("info.log", {"info", "warning", "error", "critical", "emergency"}),
    ):
        assert records(directory / name) == [entry for entry in everything if entry[0] in levels], name
    for name in ("nothing.log", "none.log"):
        assert not (directory / name).exists() or (directory / name).read_text() == ""


def test_operations_46_included_and_excluded_ids(make_server: StartServer, peers: Peers) -> None:
    """operations.md §13 46"""
    server = start(
        make_server,
        target("both.log", IncludeErrors="00-0015,00-0001", ExcludeErrors="00-0015"),
        target("ready.log", IncludeErrors="00-0015"),
        target("outbound.log", Level="trace", ExcludeErrors="12-.*"),
        target("inbound.log", IncludeErrors="12-.*"),
    )
    some_work(peers, server)
    server.stop()
    directory = server.directory
    assert records(directory / "both.log") == [("info", "00-0001")]
    assert records(directory / "ready.log") == [("info", "00-0015")]
    outbound = [record_id for _, record_id in records(directory / "outbound.log")]
    assert "17-0002" in outbound
    assert not [record_id for record_id in outbound if record_id.startswith("12-")]
    inbound = [record_id for _, record_id in records(directory / "inbound.log")]
    assert {"12-0001", "12-0010"} <= set(inbound)
    assert all(record_id.startswith("12-") for record_id in inbound)


def test_operations_47_form_of_records(make_server: StartServer, peers: Peers) -> None:
    """operations.md §13 47, §6.2"""
    server = start(make_server, target("a.log", Level="developer"))
    client = peers.logged_on(server)
    client.publish(
        "t", b'{\n  "pretty": true\n}\n2026-01-01T00:00:00.0000000+00:00 [1] error: 00-0000 forged'
    )
    client.flush()
    client.close()
    server.stop()
    lines = (server.directory / "a.log").read_text().splitlines()
    assert RECORD.match(lines[0])
    beginnings = [line for line in lines if RECORD.match(line)]
    assert not [line for line in beginnings if "forged" in line]
    # Every line that begins like a record is one, and the texts contain no level names.
    stamped = [line for line in lines if re.match(r"\d{4}-\d\d-\d\dT", line)]
    assert stamped == beginnings
    for line in beginnings:
        level = RECORD.match(line)[1]  # type: ignore[index]
        if level in ("info", "trace") and " 00-0004 " not in line:
            assert not re.search(r"\b(warning|error|critical|emergency)\b", line)


def test_operations_6_4_documented_records(make_server: StartServer, peers: Peers, unique: str) -> None:
    """operations.md §6.4: ids whose text is documented."""
    server = start(make_server, target("a.log", Level="trace"))
    client = peers.logged_on(server, name=unique, x="CorrelationId42", user_id="ana", pw="secret")
    client.publish("t", b'{"n":1}', s=1)
    client.flush()
    client.close()
    server.log.wait_for("07-0013", f"client[{unique}] disconnected.")
    server.stop()
    text = (server.directory / "a.log").read_text()
    assert re.search(
        rf'trace: 12-0001 client\[{unique}\] publish command received: \{{"c":"p".*\}}\{{"n":1\}}', text
    )
    assert re.search(r'trace: 12-0010 client\[[^]]+\] logon command received: \{[^}]*"c":"logon"', text)
    assert re.search(rf'trace: 17-0002 client\[{unique}\] ack sent: \{{"c":"ack"', text)
    logon = re.search(
        rf"info: 1F-0004 \[(\S+)\] AMPS client session logon for: {unique}\n((?:.+\n){{6}})", text
    )
    assert logon is not None
    assert re.fullmatch(r"Test-json-\d+-\d+", logon[1])
    for line in ("client authid = ''", "correlation id = CorrelationId42"):
        assert line in logon[2].splitlines()
    assert len(re.findall(r"info: 00-0015 AMPS initialization completed \([\d.]+ seconds\)\.", text)) == 1


def test_operations_48_rotation(make_server: StartServer, peers: Peers) -> None:
    """operations.md §13 48"""
    server = start(
        make_server,
        target("x-%n.log", Level="trace", RotationThreshold="10k"),
        target("same.log", Level="trace", RotationThreshold="10k"),
        target("kept.log", Level="info"),
    )
    some_work(peers, server, 300)
    server.stop()
    files = sorted(server.directory.glob("x-*.log"))
    assert len(files) > 2
    assert [file.name for file in files] == [f"x-{number:05d}.log" for number in range(len(files))]
    for file in files[:-1]:
        assert 5_000 <= file.stat().st_size <= 10_000
    assert (server.directory / "same.log").stat().st_size <= 10_000
    first = (server.directory / "kept.log").read_text()
    server.start()
    server.stop()
    second = (server.directory / "kept.log").read_text()
    assert second.startswith(first)
    assert second.count("00-0015") == 2


def test_operations_49_compressed_logs(make_server: StartServer, peers: Peers) -> None:
    """operations.md §13 49"""
    server = start(
        make_server,
        target("z-%n.log", Protocol="gzip", Level="trace", RotationThreshold="10k"),
        target("all.log", Level="trace"),
    )
    some_work(peers, server, 300)
    server.stop()
    files = sorted(server.directory.glob("z-*.log.gz"))
    assert len(files) > 2
    texts = [gzip.decompress(file.read_bytes()).decode() for file in files]
    assert all(5_000 <= len(text.encode()) <= 10_000 for text in texts[:-1])
    assert "".join(texts) == (server.directory / "all.log").read_text()


@pytest.mark.parametrize("name", ["initMessage", "a.log"])
def test_operations_6_5_the_extension_is_added_once(make_server: StartServer, name: str) -> None:
    """operations.md §6.5"""
    server = start(make_server, target(f"new/{name}", Level="info"))
    server.stop()
    assert [file.name for file in (server.directory / "new").iterdir()] == [
        name.removesuffix(".log") + ".log"
    ]


def test_operations_6_the_log_outlives_its_process(make_server: StartServer, peers: Peers) -> None:
    """A new log process replaces a dead one, and no record is missing."""
    server = start(make_server, target("a.log", Level="info"))
    (old,) = server.pids("amps: log")
    server.kill_process(old)
    client = peers.logged_on(server, name="while-it-restarts")
    client.close()

    def logged() -> bool:
        text = (server.directory / "a.log").read_text()
        return "client[while-it-restarts] disconnected." in text

    wait_until(logged, 20, lambda: server.excerpt())
    assert server.pids("amps: log") not in ([], [old])
    assert server.process is not None
    server.stop()


HANGUP = action(on("signal", Signal="SIGHUP"), do("rotate-logs"))


def open_files(server: ServerProcess) -> set[str]:
    """The files that the log process has open for writing."""
    (log,) = server.pids("amps: log")
    descriptors = Path(f"/proc/{log}/fd")
    return {os.readlink(path) for path in descriptors.iterdir() if path.exists() or path.is_symlink()}


def hang_up(server: ServerProcess) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_operations_9_3_a_signal_has_a_renamed_file_opened_anew(
    make_server: StartServer, peers: Peers, protocol: str
) -> None:
    """operations.md §9.3, §9.4: the procedure of logrotate. Once the log reports that all targets begin their next
    file, no process has the old file open. No record is lost, and the server goes on.
    """
    name = "bad.log" if protocol == "file" else "bad.gz"
    # This target excludes the records of the action itself: a record would cause the file to be reopened as well.
    server = start(
        make_server,
        target(name, Protocol=protocol, IncludeErrors="02-0030"),
        instance_xml=f"<Actions>{HANGUP}</Actions>",
    )
    path = server.directory / name
    renamed = server.directory / f"{name}.1"

    def texts(path: Path) -> int:
        data = path.read_bytes()
        if protocol == "gzip":  # the end may not be written yet
            data = zlib.decompressobj(wbits=31).decompress(data)
        return data.count(b" 02-0030 ")

    client = peers.logged_on(server)
    client.try_subscribe("(", "bad")
    wait_until(lambda: path.exists() and texts(path) == 1, 20, "not logged")
    path.rename(renamed)
    assert str(renamed) in open_files(server)
    hang_up(server)
    wait_until(lambda: str(renamed) not in open_files(server), 20, "the old file is still open")
    assert str(path) in open_files(server)
    client.try_subscribe("(", "worse")
    wait_until(lambda: texts(path) == 1, 20, "not logged in the new file")
    assert texts(renamed) == 1


def test_operations_9_4_logrotate_with_the_shipped_configuration(
    make_server: StartServer, tmp_path: Path
) -> None:
    """operations.md §9.4: conf/amps.logrotate, with other names."""
    if shutil.which("logrotate") is None or os.getuid() != 0:
        pytest.skip("needs logrotate, and root, which it changes users from")
    server = start(make_server, target("amps.log", Level="info"), instance_xml=f"<Actions>{HANGUP}</Actions>")
    assert server.process is not None
    text = (REPOSITORY / "conf" / "amps.logrotate").read_text()
    for old, new in (
        ("/var/lib/amps/logs/amps.log", str(server.directory / "amps.log")),
        ("/opt/etc/amps/config.xml", str(server.directory / "config.xml")),
        ("systemctl kill --kill-whom=main --signal=HUP amps.service", f"kill -HUP {server.process.pid}"),
        ("su amps amps", "su root root"),
        ("create 0640 amps amps", "create 0640 root root"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    configuration = tmp_path / "logrotate.conf"
    configuration.write_text(text)
    configuration.chmod(0o644)
    for number in (1, 2):
        before = (server.directory / "amps.log").read_text()
        done = subprocess.run(
            ["logrotate", "-f", "-s", tmp_path / "state", configuration],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        old = server.directory / "amps.log.1"
        wait_until(lambda old=old: str(old) not in open_files(server), 20, "still open")
        assert old.read_text().startswith(before)
        wait_until(
            lambda: "29-0003" in (server.directory / "amps.log").read_text(), 20, "nothing logged any more"
        )
        assert (server.directory / "amps.log.2.gz").exists() == (number == 2)


def test_operations_70_sighup_alone_stops_the_server(make_server: StartServer) -> None:
    """operations.md §9.4, §13 70: unless an action is configured for it, and `--help` says so."""
    server = make_server().start()
    server.stop(signal.SIGHUP)
    helped = subprocess.run(
        [sys.executable, "-P", "-m", "amps.server.main", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "SIGHUP  stop in order" in helped
    assert "amps-action-do-rotate-logs" in helped
