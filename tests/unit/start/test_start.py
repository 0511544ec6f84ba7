"""Steps before the server runs: host checks, first records, background start, shipped files."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from amps.config import ConfigError, load
from amps.server import host
from amps.server.eventlog import EventLog, open_log_channel
from amps.server.eventlog.records import unpack
from amps.server.host import FILE_MAX_OVERRIDE, check_host, raise_open_files_limit
from amps.server.startup import log_startup
from tests.support.certificates import Authority
from tests.support.server import package_path, wait_until

REPOSITORY = Path(__file__).resolve().parents[3]


def host_with(root: Path, file_max: str = "2097152", huge_pages: str = "always [madvise] never") -> Path:
    for path, text in (
        ("proc/sys/fs/file-max", file_max),
        ("sys/kernel/mm/transparent_hugepage/enabled", huge_pages),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


@pytest.fixture
def enough_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (65536, 65536))


@pytest.mark.usefixtures("enough_files")
def test_a_host_as_recommended(tmp_path: Path) -> None:
    found = check_host(host_with(tmp_path))
    assert found.errors == found.warnings == ()


@pytest.mark.usefixtures("enough_files")
def test_a_host_without_readable_settings(tmp_path: Path) -> None:
    found = check_host(tmp_path)
    assert found.errors == found.warnings == ()


def test_operations_1_7_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """operations.md §1.7"""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    assert check_host(host_with(tmp_path)).warnings == (
        "ulimit -n is set less than the recommended value of 32768",
    )


@pytest.mark.usefixtures("enough_files")
def test_operations_1_7_huge_pages(tmp_path: Path) -> None:
    """operations.md §1.7"""
    assert check_host(host_with(tmp_path, huge_pages="[always] madvise never")).warnings == (
        "/sys/kernel/mm/transparent_hugepage/enabled is not set to the recommended value of [madvise] "
        "or the acceptable value of [never]",
    )


@pytest.mark.usefixtures("enough_files")
def test_operations_1_9_the_minimum_of_open_files_can_be_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """operations.md §1.9"""
    small = host_with(tmp_path, file_max="262143")
    (error,) = check_host(small).errors
    assert error.startswith("/proc/sys/fs/file-max is set less than the minimum of 262144")
    assert FILE_MAX_OVERRIDE in error
    monkeypatch.setenv(FILE_MAX_OVERRIDE, "1")
    found = check_host(small)
    assert found.errors == ()
    assert len(found.warnings) == 1


def test_the_soft_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, values: limits.append(values))
    raise_open_files_limit()
    assert limits == [(4096, 4096)]


def test_the_first_records_hold_the_whole_configuration() -> None:
    """A configuration larger than a record is logged in parts, cut between lines."""
    comment = "\n".join(f"line {number} " + "x" * 100 for number in range(2000))
    text = f"<AMPSConfig><Name>n m</Name><!--\n{comment}\n{'y' * 100_000}--></AMPSConfig>"
    loaded = load("c.xml", text=text)
    sender, receiver = open_log_channel()
    pid = os.fork()
    if pid == 0:
        receiver.close()
        log_startup(EventLog(sender, 0, 0), loaded)
        os._exit(0)
    sender.close()
    records = []
    while packet := receiver.recv(2**17):
        record = unpack(packet)
        assert record is not None
        records.append(record)
    receiver.close()
    assert os.waitpid(pid, 0)[1] == 0
    ids = [record.id for record in records]
    assert ids[0] == "00-0001"
    assert ids[-1] == "00-0005"
    parts = [record.text.split("\n", 1)[1] for record in records if record.id == "00-0004"]
    assert len(parts) > 3
    echoed = "\n".join(parts)
    assert echoed.replace("\n", "") == loaded.expanded_text.replace("\n", "")
    assert comment in echoed
    assert "bytes left out" not in echoed


DAEMON = """
import os, sys, time
from amps.server.daemon import run_as_daemon
def run(ready_fd):
    {body}
sys.exit(run_as_daemon(run))
"""


def environment() -> dict[str, str]:
    """The environment for a child with its own working directory, which uses the same package as these tests."""
    return {**os.environ, "PYTHONPATH": package_path()}


def run_daemon(body: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DAEMON.format(body=body)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=directory,
        env=environment(),
    )


def test_a_daemon_reports_its_pid_when_it_is_ready(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    started = run_daemon(
        f"time.sleep(0.3); open({str(mark)!r}, 'w').close(); os.write(ready_fd, b'ready'); "
        "os.close(ready_fd); time.sleep(600); return 0",
        tmp_path,
    )
    assert started.returncode == 0, started.stderr
    assert mark.exists()
    process = psutil.Process(int(started.stdout.split("pid ")[1]))
    assert process.terminal() is None
    assert process.cwd() == str(tmp_path)
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=10)


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ("return 1", 1, "did not start"),
        ("return 7", 7, "did not start"),
        ("os.close(ready_fd); return 1", 1, "did not start"),
        ("raise OSError('address in use')", 1, "address in use"),
        ("os._exit(3)", 1, "ended before it was ready"),
    ],
)
def test_a_daemon_that_fails_reports_it(body: str, code: int, text: str, tmp_path: Path) -> None:
    started = run_daemon(body, tmp_path)
    assert started.returncode == code
    assert text in started.stderr


@pytest.mark.parametrize("name", ["minimal", "transaction-log", "service", "tls"])
def test_shipped_configurations_are_valid(name: str, tmp_path: Path, authority: Authority) -> None:
    identity = authority.issue("localhost")
    for target, source in (
        ("server.pem", identity.certificate),
        ("server.key", identity.private_key),
        ("ca.pem", authority.certificate),
    ):
        (tmp_path / target).write_bytes(source.read_bytes())
    loaded = load(REPOSITORY / "conf" / f"{name}.xml", {"PKI": str(tmp_path)})
    assert loaded.findings == ()


def test_the_tls_configuration_asks_for_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"\$\{PKI\}"):
        load(REPOSITORY / "conf" / "tls.xml")


@pytest.mark.parametrize("script", ["install-amps-daemon.sh", "uninstall-amps-daemon.sh"])
def test_operations_10_service_scripts_accept_only_help(script: str, tmp_path: Path) -> None:
    """operations.md §10"""
    path = REPOSITORY / "tools" / script
    environment = {**os.environ, "AMPS_PREFIX": str(tmp_path / "amps"), "AMPS_UNIT_DIRECTORY": str(tmp_path)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, check=False
        )

    helped = run(str(path), "--help")
    assert helped.returncode == 0
    assert helped.stdout.startswith("usage: ")
    wrong = run(str(path), "--force")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("usage: ")
    # The script runs as a user other than root: a shell function stands in for `id`.
    as_user = run("sh", "-c", f'id() {{ echo 1000; }}; set --; . "{path}"')
    assert as_user.returncode == 1
    assert "root is needed" in as_user.stderr


def test_uninstalling_leaves_other_directories_alone(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root")
    precious = tmp_path / "amps"
    precious.mkdir()
    (precious / "file").write_text("x")
    done = subprocess.run(
        [str(REPOSITORY / "tools" / "uninstall-amps-daemon.sh")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "AMPS_PREFIX": str(precious), "AMPS_UNIT_DIRECTORY": str(tmp_path / "units")},
        check=False,
    )
    assert done.returncode == 1
    assert (precious / "file").read_text() == "x"


def test_version_lines_name_the_product_and_a_date() -> None:
    first, second = host.version_lines()
    assert first.startswith("amps-server ")
    assert second.startswith("(Built: 20")
    assert time.strptime(second, "(Built: %Y-%m-%dT%H:%M:%SZ)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupting_the_start_of_a_daemon_stops_it(number: signal.Signals, tmp_path: Path) -> None:
    """The daemon has a session of its own, so that the terminal's signal does not reach it."""
    body = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(600); return 0"
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON.format(body=body)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    ) as command:
        pid_file = tmp_path / "pid"
        wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("."), 30, "not started")
        daemon = psutil.Process(int(pid_file.read_text().rstrip(".")))
        parent_waits = 0.2
        time.sleep(parent_waits)
        command.send_signal(number)
        assert command.wait(30) == 128 + number
        assert command.stderr is not None
        assert f"pid {daemon.pid} gets a signal to stop" in command.stderr.read()
        assert not psutil.wait_procs([daemon], timeout=30)[1]


# --- standard streams -------------------------------------------------------------------------------------


def command(redirection: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"$0" -P -m amps.server.main "$@" {redirection}', sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=directory,
        env=environment(),
    )


@pytest.mark.parametrize(
    ("redirection", "code"), [(">&-", 0), (">/dev/full", 1), ("<&- >&- 2>&-", 0), ("| true", 0)]
)
def test_output_that_cannot_be_written_causes_no_crash(redirection: str, code: int, tmp_path: Path) -> None:
    done = command(redirection, tmp_path, "--sample-config")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert ("No space left" in done.stderr) == (code == 1)


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_server_starts_without_standard_streams(redirection: str, tmp_path: Path) -> None:
    """Messages go to the log, and no file of the server gets the number of a standard stream."""
    log = tmp_path / "a.log"
    config = tmp_path / "c.xml"
    config.write_text(
        f"<AMPSConfig><Name>n</Name><Logging><Target><Protocol>file</Protocol><Level>info</Level><FileName>{log}"
        "</FileName></Target><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging></AMPSConfig>"
    )
    with subprocess.Popen(
        ["sh", "-c", f'exec "$0" -P -m amps.server.main "$1" {redirection}', sys.executable, str(config)],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            wait_until(lambda: log.exists() and "00-0015" in log.read_text(), 30, "not ready")
            for child in (psutil.Process(server.pid), *psutil.Process(server.pid).children()):
                links = [os.readlink(f"/proc/{child.pid}/fd/{number}") for number in range(3)]
                assert all(link.startswith(("/", "pipe:")) for link in links), links
        finally:
            server.terminate()
            code = server.wait(30)
        assert code == 0
        assert server.stderr is not None
        assert "Traceback" not in server.stderr.read()


def test_the_first_records_are_written_without_a_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    sender, receiver = open_log_channel()
    log_startup(
        EventLog(sender, 0, 0), load(tmp_path / "c.xml", text="<AMPSConfig><Name>n</Name></AMPSConfig>")
    )
    sender.close()
    records = []
    while packet := receiver.recv(2**17):
        records.append(unpack(packet))
    receiver.close()
    assert any(r is not None and r.id == "00-0054" and "directory removed" in r.text for r in records)


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("amps.client", "amps.config amps.server asyncio lxml numpy psutil rich"),
        ("amps.cli.main", "amps.config amps.server asyncio lxml numpy psutil rich"),
        ("amps.server.main", "amps.client amps.server.supervisor asyncio http.client numpy rich uvloop"),
        ("amps.server.supervisor", "aiohttp amps.client click http.client rich"),
    ],
)
def test_unneeded_modules_are_not_loaded(module: str, needless: str) -> None:
    """Loading delays every start of a process."""
    code = f"import sys, {module}; print(*sorted({set(needless.split())} & sys.modules.keys()))"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": package_path()},
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"\n"
