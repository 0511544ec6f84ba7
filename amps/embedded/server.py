"""`Server`: a real server for a program or its tests, in processes of its own, on free ports of 127.0.0.1.

A temporary directory is removed at the end. The server reports readiness over the socket of the service manager's
protocol (NOTIFY_SOCKET), so no log is parsed and any configuration can be used. It ends with the program that started
it, even if that is killed (starter.py).

What may not live here: imports of the server's modules, which run only in the processes of `starter`.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from amps.embedded.configuration import Queues, SowTopics, Topics, as_text, configuration_text
from amps.embedded.launching import Launched, launch
from amps.embedded.manual_clock import ADVANCE_S_MAX, ClockConnection, check_limit, read_offset_ns
from amps.embedded.ports import ReservedPort

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
_POLL_S = 0.005

RUNNING: "list[Server]" = []
"""The servers of this process that have been started and not closed."""

_PORT_NAME = re.compile(r"\$\{(PORT(?:_\w+)?)\}")

_FAILED_RECORD = re.compile(r"\S+ \[\d+\] (?:error|critical|emergency): .*")
_REFUSED = "the configuration cannot be used"


class ServerError(RuntimeError):
    """The server could not be started or stopped; the text has the reason, or the end of the server's output."""


class ServerConfigurationError(ServerError):
    """The configuration has errors; the text has each of them with its file and line."""


class Server:
    """A server of one's own. Use it as a context manager, or call `start` and, at the end, `close`.

        with amps.Server(queues=["work"]) as server:
            client = Client("test", server.uri())

    - directory: where the server runs and keeps its data. By default a temporary directory, which `close` and the end
      of the program remove; a directory that is given is kept, and the next server continues with its data.
    - topics: topics that the transaction log records: names, regular expressions, or (name, message type). By default,
      all topics. An empty list means no transaction log: nothing is recorded, and bookmarks are not available.
    - sow: topics that remember the last message of every key: `{"orders": "/id", "fills": ["/desk", "/id"]}`, or names
      with elements, `{"orders": {"Key": "/id", "Expiration": "30s"}}`. The message type is json unless the element
      MessageType says otherwise.
    - queues: names of message queues, or names with elements, `{"work": {"LeasePeriod": "2s"}}`. The message type is
      json unless the element MessageType says otherwise.
    - extra_config: further elements of the configuration, as XML.
    - configuration: the whole configuration instead of the arguments above: its text, the path of a file, or an element
      of xml.etree or lxml. `${PORT}` in it becomes a free port, `${PORT_name}` another one for each name. Relative
      paths are in the directory.
    - clock: "manual" lets `advance` raise the server's time over that of the system.

    Raises ServerError if the server cannot be started, ServerConfigurationError if the configuration is why, ValueError
    or TypeError for wrong arguments, OSError for a file that cannot be read. A forked child of the program cannot end
    its parent's server: `stop`, `kill` and `close` do nothing there. Source: queue_guarantees.md §5.
    """

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        topics: Topics = (".*",),
        sow: SowTopics = MappingProxyType({}),
        queues: Queues = (),
        extra_config: str = "",
        configuration: Any = None,
        clock: Literal["system", "manual"] = "system",
    ) -> None:
        if configuration is None:
            self._config = configuration_text(topics=topics, sow=sow, queues=queues, extra_config=extra_config)
        else:
            if sow or queues or extra_config:
                raise ValueError("configuration is the whole configuration: put sow, queues and extra_config into it")
            self._config = as_text(configuration)
        if clock not in ("system", "manual"):
            raise ValueError(f'clock is "system" or "manual", not {clock!r}')
        self._manual = clock == "manual"
        self._clock: ClockConnection | None = None
        self._clock_lock = threading.Lock()
        self._directory = None if directory is None else Path(directory).resolve()
        self._temporary = directory is None
        self._owner_pid = os.getpid()
        self._ports: dict[str, ReservedPort] = {}
        self._process: Launched | None = None
        self._pids: list[int] = []
        self._err_bytes = 0  # of earlier starts

    def __repr__(self) -> str:
        state = f"running, process {self._process.pid}" if self._process is not None else "not running"
        return f"<Server in {self._directory}: {state}>"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Facts

    @property
    def directory(self) -> Path:
        """The directory in which the server runs. Raises ServerError before `start` and after `close`."""
        if self._directory is None:
            raise ServerError("the server has no directory before start() and after close()")
        return self._directory

    @property
    def running(self) -> bool:
        """Whether the server's first process runs."""
        return self._process is not None and self._process.poll() is None

    def port(self, name: str = "") -> int:
        """Return the port that `${PORT}` stands for in the configuration, or `${PORT_name}` with a name."""
        variable = f"PORT_{name}" if name else "PORT"
        if variable not in _PORT_NAME.findall(self._config):
            raise ValueError(f"the configuration has no ${{{variable}}}")
        if variable not in self._ports:
            self._ports[variable] = ReservedPort()
        return self._ports[variable].number

    def uri(self, message_type: str = "json", *, user: str = "", password: str = "", port: str = "") -> str:
        """Return the connection string for clients with a message type, `tcp://127.0.0.1:port/amps/json`.

        `port` is the name of a port, as for `port()`.
        """
        login = f"{user}:{password}@" if password else f"{user}@" if user else ""
        return f"tcp://{login}127.0.0.1:{self.port(port)}/amps/{message_type}"

    @property
    def log_path(self) -> Path:
        """The file with the server's event log, of all its starts. A configuration of one's own needs a target `stdout`
        for it.
        """
        return self.directory / "server.out"

    @property
    def _err_path(self) -> Path:
        return self.directory / "server.err"

    @property
    def output(self) -> str:
        """The server's output, of all its starts: its event log, then its standard error."""
        return _read(self.log_path) + _read(self._err_path)

    def errors(self) -> list[str]:
        """Return the records of the event log at level error and above, then the lines of standard error.

        The log is written by a process of the server, a moment after the event.
        """
        records = [line for line in _read(self.log_path).splitlines() if _FAILED_RECORD.match(line)]
        return records + [line for line in _read(self._err_path).splitlines() if line]

    # Time

    def time(self) -> float:
        """Return the server's time in UNIX seconds: the system's, plus what `advance` has added."""
        return time.time() + (read_offset_ns(self._clock_path) / 1e9 if self._manual else 0.0)

    def advance(self, seconds: float) -> None:
        """Raise the server's time by that many seconds, and return when what is due then has been done.

        All times of the server follow: leases, expiries, schedules, heartbeats, timestamps. When it returns, messages
        that have become available have been handed to the connections, and actions that have become due have run. The
        time jumps: a schedule with several times in between is due once. Raises ValueError if seconds is negative or
        too large, ServerError if the clock is not manual, or the server does not run or ends meanwhile.
        """
        if not self._manual:
            raise ServerError('the server has the clock of the system; start it with clock="manual"')
        with self._clock_lock:
            if self._clock is None or self._process is None:
                raise ServerError("the server does not run")
            try:
                check_limit(read_offset_ns(self._clock_path), min(max(seconds, 0), ADVANCE_S_MAX))
                self._clock.advance(seconds)
            except OSError as error:
                raise ServerError(f"the time could not be advanced: {error}{self._tail()}") from error

    @property
    def _clock_path(self) -> Path:
        return self.directory / "clock"

    # Life

    def start(self) -> Self:
        """Start the server, and wait until it accepts connections. After `stop` or `kill` it keeps its files and ports.

        Raises ServerError if the server refuses to start, is not ready within 30 s, or is not installed.
        """
        if self._process is not None:
            raise ServerError("the server runs already; stop it, or use restart()")
        package = _server_package()
        self._owner_pid = os.getpid()
        if self._directory is None:
            # The starter makes it: a program that dies now leaves nothing.
            self._directory = Path(tempfile.gettempdir()).resolve() / f"amps-embedded-{secrets.token_hex(8)}"
        if self._directory.exists() and not self._directory.is_dir():
            raise ServerError(f"{self._directory} is not a directory")
        try:
            offset_ns = read_offset_ns(self._clock_path)
        except OSError as error:
            raise ServerError(str(error)) from error
        if offset_ns and not self._manual:
            raise ServerError(
                f"the time in {self._directory} is {offset_ns / 1e9:g} s ahead of the system's, and its log has later "
                'times than now; open it with clock="manual"'
            )
        names = set(_PORT_NAME.findall(self._config))
        ports = {name: self.port(name.removeprefix("PORT").removeprefix("_")) for name in names}
        self._err_bytes = self._err_path.stat().st_size if self._err_path.exists() else 0
        with _notifications() as (address, notified):
            self._launch(package, ports, address)
            self._wait_until_ready(notified)
        return self

    def _launch(self, package: str, ports: dict[str, int], notify_address: str) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "WATCHDOG_USEC"}
        environment["NOTIFY_SOCKET"] = notify_address
        request = {
            "arguments": ["config.xml", *(f"-D{name}={number}" for name, number in ports.items())],
            "configuration": self._config,
            "directory": str(self.directory),
            "temporary": self._temporary,
            "out": str(self.log_path),
            "err": str(self._err_path),
            "environment": environment,
            "clock": str(self._clock_path),
        }
        connection = ClockConnection() if self._manual else None
        try:
            self._process = launch(package, request, None if connection is None else connection.theirs)
        except OSError as error:
            if connection is not None:
                connection.close()
            raise ServerError(f"the server cannot be started: {error}") from error
        if connection is not None:
            connection.theirs.close()
        self._clock = connection
        self._pids.append(self._process.pid)
        RUNNING.append(self)

    def _wait_until_ready(self, notified: socket.socket) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        notified.settimeout(_POLL_S)
        while True:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in notified.recv(4096):
                    return
                continue
            code = self._process.poll()
            if code is not None:
                self._forget()
                said = self._said()
                if code == 1 and _REFUSED in said:
                    raise ServerConfigurationError(said)
                raise ServerError(f"the server ended with exit code {code} before it was ready{self._tail()}")
            if time.monotonic() > deadline:
                tail = self._tail()
                self.kill()
                raise ServerError(f"the server was not ready after {START_TIMEOUT_S:g} s{tail}")

    def _said(self) -> str:
        """The standard error of this start."""
        with contextlib.suppress(FileNotFoundError), self._err_path.open("rb") as file:
            file.seek(self._err_bytes)
            return file.read().decode(errors="replace").rstrip()
        return ""

    def stop(self) -> None:
        """Stop the server in order, as SIGTERM does. No effect if it does not run.

        Raises ServerError if it does not end within 30 s, or ends with an error: a crash that a test has caused.
        """
        process = self._process
        if process is None or self._owner_pid != os.getpid():
            return
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        code = process.wait(STOP_TIMEOUT_S)
        if code is None:
            tail = self._tail()
            self.kill()
            raise ServerError(f"the server still ran {STOP_TIMEOUT_S:g} s after SIGTERM{tail}")
        self._end_group(process.pid)
        if code != 0:
            raise ServerError(f"the server ended with exit code {code} after SIGTERM{self._tail()}")

    def kill(self) -> None:
        """End all processes of the server at once, as a power failure does (SIGKILL). No effect if it does not run.

        Returns when no process of it is left, so that its ports and files are free.
        """
        if self._process is not None and self._owner_pid == os.getpid():
            self._end_group(self._process.pid)

    def restart(self) -> Self:
        """Stop the server in order if it runs, and start it on the same files and ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End the server and remove all its files; a directory that was given is kept. Safe to call again."""
        if self._owner_pid != os.getpid():
            return
        try:
            self.kill()
        finally:
            for pid in self._pids:
                for left in _runtime_base().glob(f"amps-run-{pid}-*"):
                    shutil.rmtree(left, ignore_errors=True)
            self._pids.clear()
            for port in self._ports.values():
                port.release()
            self._ports.clear()
            if self._temporary and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def _end_group(self, group: int) -> None:
        """Kill all processes of the server, which are one process group, and wait until they have ended."""
        assert self._process is not None
        deadline = time.monotonic() + _END_TIMEOUT_S
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            if not _group_lives(group):
                break
            if time.monotonic() > deadline:
                raise ServerError(f"processes of group {group} are left {_END_TIMEOUT_S:g} s after SIGKILL")
            time.sleep(_POLL_S)
        self._forget()

    def _forget(self) -> None:
        self._process = None
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        if self in RUNNING:
            RUNNING.remove(self)

    def _tail(self, lines: int = 40) -> str:
        """What the server has said: its last errors, then the end of its output."""
        return "\n" + "\n".join([*self.errors()[-5:], "", *self.output.splitlines()[-lines:]])


def _server_package() -> str:
    """Return the directory of the package `amps`. Raises ServerError if it lacks the server, or is not compiled."""
    if importlib.util.find_spec("amps.server") is None:
        raise ServerError(
            "the server is not installed; it is in the package amps-server: "
            "pip install amps-server"
        )
    import amps

    package = next(path for path in amps.__path__ if (Path(path) / "server").is_dir())
    if not any((Path(package) / "_core" / "shm").glob("memory.*.so")):
        raise ServerError(
            f"{package} is a source tree that is not compiled, and Python has found it before the installed package: "
            "run the program from another directory, or with python -P"
        )
    return package


@contextlib.contextmanager
def _notifications() -> Iterator[tuple[str, socket.socket]]:
    """Receive messages of the service manager's protocol: the value for NOTIFY_SOCKET, and the socket."""
    name = f"amps-embedded-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        yield "@" + name, receiver


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _group_lives(group: int) -> bool:
    """Whether a process group has a process that has not ended. Ended ones that await their reaper do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, _parent, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(its_group) == group and state not in "ZX":
                    return True
    return False


def _runtime_base() -> Path:
    """The directory in which servers keep files in memory; those of a killed server are left there."""
    configured = os.environ.get("AMPS_RUNTIME_DIRECTORY")
    shared_memory = Path("/dev/shm")
    usable = shared_memory.is_dir() and os.access(shared_memory, os.W_OK | os.X_OK)
    return Path(configured or (shared_memory if usable else tempfile.gettempdir()))
