"""The Linux service, installed into a scratch directory by its own scripts, and run as a user without rights.

No package is downloaded or compiled. A wheel is made of the package that these tests use, and its dependencies are
linked into a directory that the new environment sees. The interpreter must be one that any user may run.
"""

import contextlib
import importlib.metadata
import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.server import package_path

REPOSITORY = Path(__file__).resolve().parents[2]
SERVICE_USER = "daemon"
"""A user that exists on every host, has no rights, and owns no file of a test."""
TIMEOUT_S = 300.0


def unusable_here() -> str:
    """Why services cannot be installed here; empty if they can."""
    if os.getuid() != 0:
        return "needs root"
    if shutil.which("runuser") is None:
        return "needs runuser (util-linux)"
    try:
        pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return f"needs the user {SERVICE_USER}"
    if interpreter() is None:
        return "needs an interpreter of this version that every user may run"
    return ""


def interpreter() -> str | None:
    """An interpreter that any user may run, of the version for which the extension modules are built."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    check = f"import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    candidates = (os.path.realpath(sys.executable), f"/usr/bin/python{version}", "/usr/local/bin/python3")
    for candidate in candidates:
        if not os.access(candidate, os.X_OK):
            continue
        done = subprocess.run(
            ["runuser", "-u", SERVICE_USER, "--", candidate, "-c", check], capture_output=True, check=False
        )
        if done.returncode == 0:
            return candidate
    return None


def make_wheel(directory: Path) -> Path:
    """A wheel of the package under test, with its built modules."""
    distribution = importlib.metadata.distribution("amps-server")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    name = f"amps_server-{distribution.version}"
    path = directory / f"{name}-{tag}-{tag}-{platform}.whl"
    package = Path(package_path().split(os.pathsep)[0]) / "amps"
    texts = {
        "METADATA": distribution.read_text("METADATA"),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-{platform}\n",
        "entry_points.txt": distribution.read_text("entry_points.txt"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        names = []
        for file in sorted(package.rglob("*")):
            if file.is_file() and file.suffix not in (".c", ".pyc") and "__pycache__" not in file.parts:
                names.append(f"amps/{file.relative_to(package)}")
                wheel.write(file, names[-1])
        for member, text in texts.items():
            assert text is not None
            names.append(f"{name}.dist-info/{member}")
            wheel.writestr(names[-1], text)
        record = "".join(f"{member},,\n" for member in (*names, f"{name}.dist-info/RECORD"))
        wheel.writestr(f"{name}.dist-info/RECORD", record)
    return path


def link_dependencies(directory: Path) -> None:
    """Link the package's run-time dependencies that are installed here into a directory that an environment sees."""
    waiting, done = ["amps-server"], set()
    while waiting:
        name = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a dependency of another platform, or of an extra
        done.add(name)
        for requirement in distribution.requires or []:
            needed, _, condition = requirement.partition(";")
            found = re.match(r"[A-Za-z0-9._-]+", needed)
            assert found is not None
            if "extra" not in condition and found[0] not in done:
                waiting.append(found[0])
        if name != "amps-server":
            _link_files(distribution, directory)


def _link_files(distribution: importlib.metadata.Distribution, directory: Path) -> None:
    for file in distribution.files or []:
        if file.parts[0] == ".." or "__pycache__" in file.parts:
            continue
        source, target = Path(str(distribution.locate_file(file))), directory / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.exists() or target.exists():
            continue
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


class Installation:
    """A source tree without build products, and the directories into which its scripts install."""

    def __init__(self, root: Path, wheel: Path, dependencies: Path) -> None:
        """`root`: a directory that every user may enter."""
        self.root = root
        self.source = root / "source"
        self.prefix = root / "opt" / "amps"
        self.config = root / "etc" / "config.xml"
        self.units = root / "units"
        self.unit = self.units / "amps.service"
        self.state = root / "state"
        self.wheel = wheel
        self.python = root / "python"
        for name in ("conf", "tools"):
            shutil.copytree(REPOSITORY / name, self.source / name)
        (self.source / "amps").mkdir()
        shutil.copyfile(REPOSITORY / "amps" / "version.py", self.source / "amps" / "version.py")
        # The environments that the installer makes see the dependencies. The first is made, others are copies of it.
        found = interpreter()
        first = dependencies.parent / "environment"
        self.python.write_text(
            f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exec {found} "$@"\n'
            f"for last; do :; done\nif [ -d {first} ]; then\n"
            f'    mkdir -p "$last" && find "$last" -mindepth 1 -delete && exec cp -a {first}/. "$last"\nfi\n'
            f'{found} "$@" || exit\nfor site in "$last"/lib/python*/site-packages; do\n'
            f'    echo {dependencies} > "$site/dependencies.pth"\ndone\n'
            f'cp -a "$last" {first}\n'
        )
        self.python.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        """The variables that give the scripts their directories."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        return {
            **kept,
            "AMPS_PREFIX": str(self.prefix),
            "AMPS_CONFIG_DIRECTORY": str(self.config.parent),
            "AMPS_UNIT_DIRECTORY": str(self.units),
            "AMPS_STATE_DIRECTORY": str(self.state),
            "AMPS_USER": SERVICE_USER,
            "PYTHON": str(self.python),
            "PIP_NO_INDEX": "1",
            **more,
        }

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `install` or `uninstall`."""
        return subprocess.run(
            [str(self.source / "tools" / f"{script}-amps-daemon.sh")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def run_managed(self, script: str, is_active: bool) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Run `install` or `uninstall` as on a host with systemd. A script in place of systemctl records its
        arguments.

        Return the result and these records.
        """
        tools, told, system = self.root / "tools", self.root / "told", Path("/etc/systemd/system")
        for directory in (tools, self.units):
            directory.mkdir(exist_ok=True)
        told.write_text("")
        systemctl = tools / "systemctl"
        systemctl.write_text(
            f'#!/bin/sh\necho "$@" >> {told}\n[ "$1" != is-active ] || exit {0 if is_active else 3}\n'
        )
        systemctl.chmod(0o755)
        # In a separate mount namespace, so that the host does not change.
        prepare = (
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || exit 99\n"
            f"mount --bind {self.units} {system} || exit 99\n"
            'exec "$0"'
        )
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                prepare,
                str(self.source / "tools" / f"{script}-amps-daemon.sh"),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self.environment(
                AMPS_UNIT_DIRECTORY=str(system), PATH=f"{tools}{os.pathsep}{os.environ['PATH']}"
            ),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done, told.read_text().splitlines()

    def install(self, **more: str) -> str:
        """Run `install`, which must succeed. Return its output."""
        done = self.run("install", **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def offer_wheel(self) -> None:
        """Put the wheel where the installer looks for one."""
        (self.source / "dist").mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.link(self.wheel, self.source / "dist" / self.wheel.name)

    def setting(self, name: str) -> str:
        """The value of a setting of the unit."""
        (value,) = re.findall(rf"(?m)^{name}=(.*)$", self.unit.read_text())
        return str(value)

    @contextlib.contextmanager
    def service(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the unit's command in its directory as its user. `command`: another command instead."""
        user = pwd.getpwnam(self.setting("User"))
        with subprocess.Popen(
            command or self.setting("ExecStart").split(),
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd=self.setting("WorkingDirectory"),
            env={"PATH": os.environ["PATH"], "AMPS_ALLOW_SMALL_FILE_MAX": "1"},
            umask=int(self.setting("UMask"), 8),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                self._stop(process)

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        """End the server. A process that has started it, such as strace, ends with it."""
        everyone = [process, *psutil.Process(process.pid).children(recursive=True)]
        server = everyone[1] if len(everyone) > 1 and "strace" in str(process.args) else process
        if process.poll() is None:
            server.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                for one in reversed(everyone):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()


def tree(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory, with size and time of its last change."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_symlink() or path.is_file()
    }
