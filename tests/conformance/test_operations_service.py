"""The Linux service: installed by its script, run as its user, upgraded and removed (operations.md §10)."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from amps.client import Client, MemoryPublishStore
from tests.support.admin import get
from tests.support.installation import (
    REPOSITORY,
    SERVICE_USER,
    Installation,
    link_dependencies,
    make_wheel,
    tree,
    unusable_here,
)
from tests.support.ports import release_port, reserve_port
from tests.support.server import wait_until

WAIT_S = 60.0
EXPOSURE_MAX = "29"
"""In tenths, as systemd-analyze counts exposure."""

pytestmark = [
    pytest.mark.skipif(bool(unusable_here()), reason=unusable_here() or "-"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def common() -> Iterator[Path]:
    """A directory that every user may enter, with the wheel and its dependencies."""
    root = Path(tempfile.mkdtemp(prefix="amps-service."))
    root.chmod(0o755)
    try:
        make_wheel(root / "wheel")
        link_dependencies(root / "dependencies")
        yield root
    finally:
        shutil.rmtree(root)


def new_installation(common: Path, name: str) -> Installation:
    (wheel,) = (common / "wheel").glob("*.whl")
    (common / name).mkdir(mode=0o755)
    return Installation(common / name, wheel, common / "dependencies")


@pytest.fixture(scope="module")
def installed(common: Path) -> Installation:
    """Installed once from a wheel, as delivered. A test that changes the installation states it."""
    made = new_installation(common, "installed")
    made.offer_wheel()
    (made.source / "conf" / "notes.xml~").write_text("not ours")
    before = tree(made.source)
    # With a wheel no compiler is needed.
    said = made.install(CC="no-such-compiler")
    assert tree(made.source) == before, "the source tree is as it was"
    assert "Created " in said
    return made


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """The ports of the transport and of the administration interface."""
    reserved = reserve_port(), reserve_port()
    yield reserved
    for port in reserved:
        release_port(port)


def edit(installation: Installation, *changes: tuple[str, str]) -> None:
    text = installation.config.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    installation.config.write_text(text)


def owner(path: Path) -> str:
    return pwd.getpwuid(path.lstat().st_uid).pw_name


def test_operations_10_the_program_and_its_files_are_those_of_the_distribution(
    installed: Installation,
) -> None:
    """operations.md §10: no other file beside them is installed."""
    shared = {path.name for path in (installed.prefix / "share" / "amps").iterdir()}
    ours = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "conf"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert shared == {Path(name).name for name in ours} or not ours
    assert "notes.xml~" not in shared
    for name in shared:
        assert (installed.prefix / "share" / "amps" / name).read_bytes() == (
            REPOSITORY / "conf" / name
        ).read_bytes()
    assert owner(installed.prefix / "bin" / "ampServer") == "root"
    assert owner(installed.state) == SERVICE_USER
    assert installed.state.stat().st_mode & 0o777 == 0o750
    assert installed.config.stat().st_mode & 0o777 == 0o640


def test_operations_10_the_unit_is_sound(installed: Installation) -> None:
    """operations.md §10: systemd reports no fault of the unit, and a low exposure."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (the package systemd)")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed.unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    measured = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={EXPOSURE_MAX}",
            "--no-pager",
            installed.unit,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert measured.returncode == 0, measured.stdout
    assert installed.setting("User") == SERVICE_USER
    assert installed.setting("LimitNOFILE") == "65536"
    assert installed.setting("Restart") == "on-failure"


def allowed_calls(unit: str) -> set[str]:
    """The system calls that the unit's filter lets through."""

    def of(name: str) -> set[str]:
        if not name.startswith("@"):
            return {name}
        listed = subprocess.run(
            ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
        ).stdout
        words = [line.strip() for line in listed.splitlines()[1:] if line.startswith("    ")]
        return {call for word in words if not word.startswith("#") for call in of(word)}

    allowed: set[str] = set(of("@default"))
    for value in re.findall(r"(?m)^SystemCallFilter=(.*)$", unit):
        calls = {call for word in value.removeprefix("~").split() for call in of(word)}
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed


def publish(port: int, count: int, padding: int = 0) -> None:
    uri = f"tcp://127.0.0.1:{port}/amps/json"
    with Client("service-test", uri, publish_store=MemoryPublishStore()) as client:
        for number in range(count):
            client.publish("orders", {"n": number, "padding": "x" * padding})
        client.publish_flush()


def is_ready(admin_port: int) -> bool:
    try:
        return get(admin_port, "/amps/instance/name").status == 200
    except OSError:
        return False


def journals(admin_port: int) -> list[str]:
    log = get(admin_port, "/amps/instance/transaction_log.json").json()["amps"]["instance"]["transaction_log"]
    return [one["id"] for one in log["journals"]]


def test_operations_10_the_service_records_and_keeps_house_without_rights(
    common: Path, ports: tuple[int, int]
) -> None:
    """operations.md §9, §10: the server runs as its user, with the delivered configuration except ports and times."""
    installation = new_installation(common, "running")
    installation.offer_wheel()
    installation.install()
    port, admin_port = ports
    edit(
        installation,
        ("127.0.0.1:9007", f"127.0.0.1:{port}"),
        ("<InetAddr>8085<", f"<InetAddr>{admin_port}<"),
        ("<FlushInterval>", "<JournalSize>10MB</JournalSize><FlushInterval>"),
        ("<Every>02:15</Every>", "<Every>1s</Every>"),
        ("<Age>30d</Age>", "<Age>1s</Age>"),
    )
    assert "Keeping " in installation.install(), "an edited configuration stays"
    with installation.service() as process:
        wait_until(lambda: is_ready(admin_port) or process.poll() is not None, WAIT_S, "not ready")
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        assert {one.username() for one in everyone} == {SERVICE_USER}
        assert len(everyone) >= 5
        publish(port, 3000, padding=10_000)
        first = "amps.0000000000.journal"
        wait_until(lambda: first not in journals(admin_port), WAIT_S, lambda: f"kept: {journals(admin_port)}")
        (log,) = (installation.state / "logs").glob("*-00000.log")
        assert owner(log) == SERVICE_USER
        assert log.stat().st_mode & 0o777 == 0o640
        # The signal rotates the log, and does not stop the server.
        process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: len(list((installation.state / "logs").glob("*-0000[01].log"))) == 2,
            WAIT_S,
            "no next file",
        )
        publish(port, 1)
    assert process.returncode == 0


def test_operations_10_the_filter_of_system_calls_lets_the_server_work(
    common: Path, installed: Installation, ports: tuple[int, int]
) -> None:
    """operations.md §10: the unit allows every system call of a server that records, serves, manages
    files and stops.
    """
    for tool in ("strace", "systemd-analyze"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    port, admin_port = ports
    config = installed.state / "traced.xml"
    text = installed.config.read_text().replace(f"{installed.state}/journal", f"{installed.state}/traced")
    for old, new in (
        ("127.0.0.1:9007", f"127.0.0.1:{port}"),
        ("<InetAddr>8085<", f"<InetAddr>{admin_port}<"),
        ("<FlushInterval>", "<JournalSize>10MB</JournalSize><FlushInterval>"),
        ("<Every>02:15</Every>", "<Every>1s</Every>"),
        ("<Every>03:00</Every>", "<Every>1s</Every>"),
        ("<Every>10m</Every>", "<Every>1s</Every>"),
        ("<Age>1d</Age>", "<Age>1s</Age>"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    config.write_text(text)
    config.chmod(0o644)
    trace = installed.state / "trace"
    trace.write_text("")
    os.chown(trace, pwd.getpwnam(SERVICE_USER).pw_uid, -1)
    with installed.service(
        *("strace", "-f", "-qq", "-e", "signal=none", "-o", str(trace)),
        *(str(installed.prefix / "bin" / "ampServer"), str(config)),
    ) as process:
        wait_until(lambda: is_ready(admin_port) or process.poll() is not None, WAIT_S, "not ready")
        if process.poll() is not None:
            pytest.skip("tracing is not permitted here")
        publish(port, 1500, padding=10_000)
        compressed = installed.state / "traced"
        wait_until(lambda: any(compressed.glob("*.gz")), WAIT_S, "nothing compressed")
    assert process.returncode == 0
    traced = trace.read_text(errors="replace")
    called = set(re.findall(r"(?m)^\d+ +(?:<\.\.\. )?([a-z_0-9]+)[( ]", traced))
    assert {"pwrite64", "fdatasync", "accept4"} & called
    unit = installed.unit.read_text()
    assert called - allowed_calls(unit) == set()
    families = set(re.findall(r"(?m)^\d+ +socket(?:pair)?\((AF_\w+)", traced))
    assert families <= set(installed.setting("RestrictAddressFamilies").split())
    opened = re.findall(r'(?m)^\d+ +openat\(\w+, "([^"]+)", [A-Z_|]*(?:O_WRONLY|O_RDWR|O_CREAT)', traced)
    made = re.findall(r'(?m)^\d+ +mkdir(?:at\(\w+, |\()"([^"]+)"', traced)
    allowed = (f"{installed.setting('ReadWritePaths')}/", "/dev/", "/proc/self/")
    # Compiled modules are optional: a process that may not write them runs without.
    elsewhere = [path for path in {*opened, *made} if path.startswith("/") and "__pycache__" not in path]
    assert [path for path in elsewhere if not path.startswith(allowed)] == [], "ProtectSystem=strict"


def test_operations_10_an_upgrade_keeps_data_and_takes_it_over(common: Path) -> None:
    """operations.md §10: files of an older installation belong to root; the configuration was edited."""
    installation = new_installation(common, "upgraded")
    elsewhere = installation.root / "elsewhere"
    journal = installation.state / "journal" / "amps.0000000000.journal"
    archived = elsewhere / "archive" / "amps.0000000000.journal"
    precious = installation.root / "precious"
    for path in (journal, archived, precious):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data")
    (installation.state / "link").symlink_to(precious)
    installation.config.parent.mkdir()
    text = (REPOSITORY / "conf" / "service.xml").read_text().replace("/var/lib/amps", str(installation.state))
    text = text.replace(
        "<FlushInterval>",
        f"<JournalArchiveDirectory>{archived.parent}</JournalArchiveDirectory><FlushInterval>",
    )
    text = text.replace("<InetAddr>8085<", "<InetAddr>443<")
    text = text.replace(f"{installation.state}/logs/%Y", f"{elsewhere}/logs/%Y")
    installation.config.write_text(text)
    installation.config.chmod(0o600)
    installation.install(AMPS_WHEEL=str(installation.wheel))
    assert installation.config.read_text() == text
    assert installation.config.stat().st_mode & 0o777 == 0o640
    assert [owner(path) for path in (journal, archived, archived.parent)] == [SERVICE_USER] * 3
    assert owner(elsewhere / "logs") == SERVICE_USER, "made for the service"
    assert [owner(path) for path in (precious, elsewhere, installation.config)] == ["root"] * 3
    assert journal.read_text() == "data"
    needs = (installation.units / "amps.service.d" / "needs.conf").read_text()
    (writable,) = re.findall(r"(?m)^ReadWritePaths=(.*)$", needs)
    assert writable.split() == [str(archived.parent), str(elsewhere / "logs")]
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in needs
    # A second installation changes nothing, and requirements that no longer apply are removed.
    before = needs, installation.unit.read_text()
    installation.install(AMPS_WHEEL=str(installation.wheel))
    assert (
        (installation.units / "amps.service.d" / "needs.conf").read_text(),
        installation.unit.read_text(),
    ) == before
    shutil.copyfile(REPOSITORY / "conf" / "minimal.xml", installation.config)
    installation.install(AMPS_WHEEL=str(installation.wheel))
    # Only one line is left: the configuration of this test is in /tmp.
    left = (installation.units / "amps.service.d" / "needs.conf").read_text().splitlines()[1:]
    assert left == ["[Service]", "PrivateTmp=false"]
    done = installation.run("uninstall")
    assert done.returncode == 0, done.stderr
    assert not installation.prefix.exists()
    assert list(installation.units.iterdir()) == []
    assert installation.config.exists()
    assert journal.read_text() == "data"


def test_operations_10_a_running_service_is_stopped_for_the_upgrade_and_started_again(common: Path) -> None:
    """operations.md §10: no file that it writes meanwhile may belong to its former user."""
    if shutil.which("unshare") is None or not Path("/etc/systemd/system").is_dir():
        pytest.skip("needs unshare (util-linux), and the directory /etc/systemd/system")
    installation = new_installation(common, "managed")
    installation.offer_wheel()
    done, told = installation.run_managed("install", is_active=False)
    if done.returncode == 99:
        pytest.skip("mounting is not permitted here")
    assert done.returncode == 0, done.stderr
    assert told == ["is-active --quiet amps.service", "daemon-reload", "enable amps.service"]
    assert "Start it with: systemctl start amps" in done.stdout
    done, told = installation.run_managed("install", is_active=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in told] == ["is-active", "stop", "daemon-reload", "enable", "start"]
    text = installation.config.read_text()
    installation.config.write_text("<AMPSConfig/>")
    done, told = installation.run_managed("install", is_active=True)
    assert done.returncode == 1
    assert [line.split()[0] for line in told] == ["is-active", "stop"]
    assert (
        "The service was stopped and does not run. When that is mended: systemctl start amps" in done.stderr
    )
    installation.config.write_text(text)
    done, told = installation.run_managed("uninstall", is_active=True)
    assert done.returncode == 0, done.stderr
    assert told == ["disable --now amps.service", "daemon-reload"]
    assert not installation.unit.exists()
    assert installation.config.read_text() == text


BACKEND = """
import os, pathlib, shutil
def build_wheel(directory, settings=None, metadata=None):
    names = sorted(str(path) for path in pathlib.Path(".").rglob("*"))
    pathlib.Path({listing!r}).write_text("\\n".join(names))
    shutil.copy({wheel!r}, directory)
    return os.path.basename({wheel!r})
"""


def test_operations_10_a_build_leaves_nothing_and_takes_nothing_else_along(common: Path) -> None:
    """operations.md §10: without a wheel the package is built from a copy, without files of earlier builds."""
    installation = new_installation(common, "built")
    source, listing = installation.source, installation.root / "listing"
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["amps"]\n'
        '[project]\nname = "amps-server"\nversion = "0"\n'
    )
    (source / "amps" / "backend.py").write_text(
        BACKEND.format(listing=str(listing), wheel=str(installation.wheel))
    )
    left = (
        "build/lib/amps/gone.py",
        "amps/_core/old.so",
        "amps/_core/old.c",
        "amps/__pycache__/a.pyc",
        "amps-data/j",
    )
    for name in ("setup.py", "README.md", "LICENSE", *left):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    before = tree(source)
    said = installation.install(CC="true")
    assert "Building " in said
    assert tree(source) == before
    built_from = set(listing.read_text().split())
    assert {"amps/version.py", "setup.py", "pyproject.toml", "LICENSE"} <= built_from
    assert not built_from & {*left, "build", "amps-data", "conf"}
    assert (installation.prefix / "bin" / "ampServer").exists()


def refusal_of(common: Path, name: str, spoil: Callable[[Installation], dict[str, str]]) -> str:
    installation = new_installation(common, name)
    done = installation.run("install", **spoil(installation))
    assert done.returncode == 1, done.stdout + done.stderr
    assert not installation.unit.exists(), "no unit without an installation that works"
    return done.stderr


def test_operations_10_an_obstacle_to_installation_is_reported(common: Path) -> None:
    """operations.md §10: the message states the remedy, and comes before the service is changed, as far as possible."""
    said = refusal_of(common, "no-compiler", lambda made: {"CC": "no-such-compiler"})
    assert "there is no C compiler; install one (gcc), or build a wheel where there is one" in said
    said = refusal_of(common, "no-wheel", lambda made: {"AMPS_WHEEL": "/nowhere.whl"})
    assert "there is no wheel /nowhere.whl; correct AMPS_WHEEL" in said
    said = refusal_of(common, "no-python", lambda made: {"PYTHON": "no-such-python"})
    assert "no-such-python is not installed" in said
    said = refusal_of(common, "as-root", lambda made: {"AMPS_WHEEL": str(made.wheel), "AMPS_USER": "root"})
    assert "does not run as root; set AMPS_USER" in said
    said = refusal_of(common, "relative", lambda made: {"AMPS_PREFIX": "opt/amps"})
    assert "opt/amps: write an absolute path" in said
    said = refusal_of(common, "system", lambda made: {"AMPS_STATE_DIRECTORY": "/var/lib"})
    assert "/var/lib belongs to the system" in said

    def other(made: Installation) -> dict[str, str]:
        made.prefix.mkdir(parents=True)
        (made.prefix / "file").write_text("x")
        return {}

    assert "holds something that is no installation of this server" in refusal_of(common, "other", other)


def test_operations_10_a_configuration_that_the_service_could_not_use_is_refused(common: Path) -> None:
    """operations.md §10: the installer reads it, and tries its paths, as the user of the service."""
    installation = new_installation(common, "unusable")
    installation.offer_wheel()
    installation.config.parent.mkdir()
    log = "<Logging><Target><Protocol>file</Protocol><FileName>{}</FileName><Level>info</Level></Target></Logging>"
    for xml, reason in (
        ("<Naem>n</Naem>", "did you mean Name?"),
        (f"<Name>n</Name>{log.format('/etc/a.log')}", "/etc cannot be written to"),
    ):
        installation.config.write_text(f"<AMPSConfig>{xml}</AMPSConfig>")
        done = installation.run("install")
        assert done.returncode == 1, done.stdout
        assert reason in done.stderr
        assert "run this again" in done.stderr
        assert not installation.unit.exists()
