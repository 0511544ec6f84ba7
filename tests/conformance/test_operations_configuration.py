"""Configuration files and the command line: operations.md §1, §2 and the behaviours 1 to 9 of §13."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.admin import get
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import (
    ServerProcess,
    StartServer,
    Transport,
    amps_server,
    package_path,
    wait_until,
)

FINDING = re.compile(
    r"^(?P<file>.*?):(?P<line>\d+): (?P<severity>error|warning|info): (?P<path>\S+): (?P<text>.+)$"
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def logging_xml(file_name: str | Path, level: str = "info") -> str:
    return (
        f"<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target>"
        f"<Target><Protocol>file</Protocol><Level>{level}</Level><FileName>{file_name}</FileName></Target></Logging>"
    )


class Notified:
    """Plays the service manager: receives the server's notifications about its state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(30)
        self.texts: list[str] = []

    def wait_for(self, text: str) -> None:
        while not any(text in received for received in self.texts):
            self.texts.append(self._socket.recv(4096).decode())

    def close(self) -> None:
        self._socket.close()


def test_operations_1_a_name_is_enough(make_server: StartServer, tmp_path: Path) -> None:
    """operations.md §13 1"""
    config = "<AMPSConfig><Name>only</Name></AMPSConfig>"
    assert amps_server("--verify-config", write(tmp_path / "c.xml", config)).returncode == 0
    manager = Notified(tmp_path)
    server = make_server(config_xml=config, environment={"NOTIFY_SOCKET": str(manager.path)})
    process = server.launch()
    try:
        manager.wait_for("READY=1")
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            listening = [c for c in one.net_connections(kind="all") if c.status == psutil.CONN_LISTEN]
            assert listening == []
        assert not re.search(r"\[\d+\] \w+: ", server.output())
        server.stop()
    finally:
        manager.close()


def test_operations_2_a_missing_name_is_named(tmp_path: Path) -> None:
    """operations.md §13 2"""
    config = write(tmp_path / "c.xml", "<AMPSConfig>\n<Group>g</Group>\n</AMPSConfig>")
    verified = amps_server("--verify-config", config)
    assert verified.returncode == 1
    assert "AMPSConfig/Name" in verified.stdout
    started = amps_server(config)
    assert started.returncode == 1
    assert "AMPSConfig/Name" in started.stderr


def test_operations_3_the_sample_is_valid_and_starts(
    make_server: StartServer, tmp_path: Path, peers: Peers
) -> None:
    """operations.md §13 3, on other ports, so that tests can run in parallel."""
    sample = amps_server("--sample-config")
    assert sample.returncode == 0
    config = write(tmp_path / "sample.xml", sample.stdout)
    assert amps_server("--verify-config", config).returncode == 0
    assert "<InetAddr>9007</InetAddr>" in sample.stdout
    server = make_server(transports=(Transport("any-tcp", message_type=None),))
    assert "<InetAddr>8085</InetAddr>" in sample.stdout
    admin_port = reserve_port()
    text = sample.stdout.replace("<InetAddr>9007</InetAddr>", f"<InetAddr>{server.port()}</InetAddr>")
    server._config_xml = text.replace("<InetAddr>8085</InetAddr>", f"<InetAddr>{admin_port}</InetAddr>")
    server.start()
    assert get(admin_port, "/amps").status == 200
    release_port(admin_port)
    for host in ("127.0.0.1",):
        client = peers.logged_on(server, host=host, mt="json")
        client.subscribe("t", "s")
        client.publish("t", b"{}")
        assert client.receive().body == b"{}"
    server.stop()


@pytest.mark.parametrize(
    ("option", "attribute", "commented"),
    [
        ("", ' comment="true"', True),
        ("", "", False),
        ("<ConfigIncludeCommentDefault>enabled</ConfigIncludeCommentDefault>", "", True),
    ],
)
def test_operations_4_include_comments_in_the_dump(
    tmp_path: Path, option: str, attribute: str, commented: bool
) -> None:
    """operations.md §13 4"""
    write(tmp_path / "f.xml", "<Description>${X}</Description>")
    config = write(
        tmp_path / "c.xml",
        f"<AMPSConfig><Name>n</Name>{option}\n<Include{attribute}>f.xml</Include>\n</AMPSConfig>",
    )
    dumped = amps_server("--dump-config", config, "-DX=v")
    assert dumped.returncode == 0
    block = (
        "<!-- Start <Include>f.xml</Include> -->\n<Description>v</Description>\n"
        "<!-- End <Include>f.xml</Include> -->"
    )
    assert "<Description>v</Description>" in dumped.stdout
    assert (block in dumped.stdout) == commented
    assert ("<!--" in dumped.stdout) == commented


def test_operations_5_a_cycle_is_refused_at_once(tmp_path: Path) -> None:
    """operations.md §13 5"""
    a = write(tmp_path / "a.xml", "<AMPSConfig><Name>n</Name><Include>b.xml</Include></AMPSConfig>")
    write(tmp_path / "b.xml", "<Tuning><Include>a.xml</Include></Tuning>")
    started = amps_server(a)
    assert started.returncode == 1
    assert f"{tmp_path / 'b.xml'}:1: error: " in started.stderr


def test_operations_6_a_log_file_beside_the_configuration(make_server: StartServer, tmp_path: Path) -> None:
    """operations.md §13 6"""
    text = f"<AMPSConfig><Name>n</Name>{logging_xml('${AMPS_CONFIG_DIRECTORY}/logs/a.log')}</AMPSConfig>"
    server = make_server(config_xml=text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    config = write(server.directory / "own.xml", text)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "amps.server.main", str(config)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": package_path()},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "00-0015" in line:
                break
        log = server.directory / "logs" / "a.log"
        wait_until(lambda: "00-0015" in log.read_text(), 10, log.read_text)
        assert list(elsewhere.iterdir()) == []
    finally:
        process.terminate()
        assert process.wait(30) == 0
        if process.stdout is not None:
            process.stdout.close()


def test_operations_7_editing_the_file_changes_nothing(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 7, as far as clients can observe it"""
    server = start_server(log_topics=("^L/",))
    (server.directory / "config.xml").write_text("<AMPSConfig/>")
    client = peers.logged_on(server)
    client.publish_persisted("L/a", [b"1"], 1)
    old = {server.core_pid(), *server.transport_pids()}
    server.kill_core()
    server.wait_for_new_tree(old)
    server.log.wait_for("01-0001", "transport 1", count=2)
    client = peers.logged_on(server)
    client.subscribe("L/a", "s", bookmark="0")
    assert client.receive().body == b"1"


def test_operations_8_minimum_versions(start_server: StartServer, tmp_path: Path) -> None:
    """operations.md §13 8"""
    required = write(
        tmp_path / "c.xml",
        "<AMPSConfig><Name>n</Name><RequiredMinimumVersion>99.0</RequiredMinimumVersion></AMPSConfig>",
    )
    started = amps_server(required)
    assert started.returncode == 1
    assert "RequiredMinimumVersion" in started.stderr
    server = start_server(instance_xml="<SuggestedMinimumVersion>99.0</SuggestedMinimumVersion>")
    warnings = [record for record in server.log.records() if record.level == "warning"]
    assert len(warnings) == 1
    assert "SuggestedMinimumVersion" in warnings[0].text


def test_operations_9_unknown_action_module(tmp_path: Path) -> None:
    """operations.md §13 9"""
    config = write(
        tmp_path / "c.xml",
        "<AMPSConfig><Name>n</Name><Actions><Action>\n"
        "<On><Module>amps-action-on-whim</Module></On></Action></Actions></AMPSConfig>",
    )
    started = amps_server(config)
    assert started.returncode == 1
    assert f"{config}:2: error: AMPSConfig/Actions/Action/On/Module: 'amps-action-on-whim'" in started.stderr


def test_operations_9_unknown_element_without_validation(start_server: StartServer, tmp_path: Path) -> None:
    """operations.md §13 9"""
    strict = write(tmp_path / "c.xml", "<AMPSConfig><Name>n</Name><Wish>x</Wish></AMPSConfig>")
    assert amps_server(strict).returncode == 1
    server = start_server(instance_xml="<ConfigValidation>disabled</ConfigValidation><Wish>x</Wish>")
    (warning,) = [record for record in server.log.records() if record.level == "warning"]
    assert "AMPSConfig/Wish" in warning.text


def test_operations_1_7_features_to_come_are_refused(tmp_path: Path) -> None:
    """operations.md §1.9: no part of a configuration is ignored. If only a feature is missing, there is a warning."""
    config = write(
        tmp_path / "c.xml",
        "<AMPSConfig><Name>n</Name>\n<Admin><Interval>10s</Interval></Admin>\n<SOW><Topic><Name>a</Name>"
        "<MessageType>json</MessageType><Key>/k</Key><FileName>f</FileName>"
        "<History><Window>1h</Window><Granularity>1s</Granularity></History></Topic></SOW></AMPSConfig>",
    )
    verified = amps_server("--verify-config", config)
    assert verified.returncode == 1
    refused = [line for line in verified.stdout.splitlines() if "not supported yet: " in line]
    assert [line.split(":")[1] for line in refused] == ["3"]
    warned = [line for line in verified.stdout.splitlines() if " warning: " in line]
    assert [line.split(":")[1] for line in warned] == ["2"]
    assert "has no effect: " in warned[0]


def test_operations_1_9_verdict_and_form_of_findings(tmp_path: Path) -> None:
    """operations.md §1.9: one line per finding, then a verdict; only errors count."""
    warned = write(
        tmp_path / "w.xml",
        "<AMPSConfig><Name>has space</Name>\n<Externals><SSL><Library>x.so</Library></SSL></Externals>"
        "</AMPSConfig>",
    )
    verified = amps_server("--verify-config", warned)
    assert verified.returncode == 0
    *findings, verdict = verified.stdout.splitlines()
    matches = [FINDING.match(line) for line in findings]
    assert [(match["severity"], match["line"]) for match in matches if match] == [
        ("warning", "1"),
        ("info", "2"),
    ]
    assert "valid" in verdict


@pytest.mark.parametrize(
    "arguments", [(), ("--bogus",), ("a.xml", "b.xml"), ("-Dx", "a.xml"), ("--verify", "a.xml")]
)
def test_operations_1_9_usage_errors(arguments: tuple[str, ...]) -> None:
    """operations.md §1.9: usage to stderr, exit 1."""
    done = amps_server(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ampServer [options] <config file>")
    assert done.stdout == ""


def test_operations_1_6_version_and_help() -> None:
    """operations.md §1.6"""
    version = amps_server("--version")
    assert version.returncode == 0
    first, second = version.stdout.splitlines()
    assert re.fullmatch(r"amps-server \d+\.\d+\.\d+ - Copyright .+", first)
    assert re.fullmatch(r"\(Built: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)", second)
    help_text = amps_server("--help")
    assert help_text.returncode == 0
    for option in (
        "--verify-config",
        "--sample-config",
        "--dump-config",
        "--version",
        "--help",
        "--daemon",
        "-D",
    ):
        assert option in help_text.stdout


def test_operations_1_3_definitions_win_over_the_environment(tmp_path: Path) -> None:
    """operations.md §1.9: undefined variables are errors that name them, -D wins."""
    config = write(tmp_path / "c.xml", "<AMPSConfig><Name>${N}</Name></AMPSConfig>")
    undefined = amps_server("--dump-config", config)
    assert undefined.returncode == 1
    assert "${N}" in undefined.stderr
    assert (
        "<Name>defined</Name>" in amps_server("--dump-config", config, "-DN=defined", N="environment").stdout
    )
    assert "<Name>environment</Name>" in amps_server("--dump-config", config, N="environment").stdout


def test_operations_1_7_output_of_a_start(start_server: StartServer) -> None:
    """operations.md §1.7: version and build date first; the expanded configuration before the ready line."""
    server: ServerProcess = start_server(instance_xml="<!-- a comment --><Description>here</Description>")
    lines = server.log.text().splitlines()
    assert re.fullmatch(r"amps-server .+ - Copyright .+", lines[0])
    assert re.fullmatch(r"\(Built: .+\)", lines[1])
    records = server.log.records()
    ids = [record.id for record in records]
    assert ids.index("00-0001") < ids.index("00-0004") < ids.index("00-0015")
    echo = "".join(record.text for record in records if record.id == "00-0004")
    assert "<!-- a comment --><Description>here</Description>" in echo


def test_operations_1_9_a_log_that_cannot_be_written_prevents_the_start(tmp_path: Path) -> None:
    """operations.md §6.5: the directory is created; a failure to create it is a start-up error."""
    (tmp_path / "blocked").write_text("")
    config = write(
        tmp_path / "c.xml",
        f"<AMPSConfig><Name>n</Name>{logging_xml(tmp_path / 'blocked' / 'a.log')}</AMPSConfig>",
    )
    started = amps_server(config, cwd=tmp_path)
    assert started.returncode == 1
    assert "blocked" in started.stderr
