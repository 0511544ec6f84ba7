"""A real server for tests of applications: started on free ports in a temporary directory, removed afterwards.

`AmpsServer` runs the installed server as a process tree of its own. The server reports readiness over the socket of
the service manager's protocol (NOTIFY_SOCKET), so no log is parsed and any configuration can be used. It ends with the
process that started it, even if that process is killed.

What may not live here: pytest, and imports of the server's modules, which run only in the processes of `starter`.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from amps.testing.configuration import Queues, Topics, configuration_text
from amps.testing.launching import Launched, launch
from amps.testing.ports import ReservedPort

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
_POLL_S = 0.005

RUNNING: "list[AmpsServer]" = []
"""The servers of this process that have been started and not closed."""

_PORT_NAME = re.compile(r"\$\{(PORT(?:_\w+)?)\}")

class AmpsServerError(RuntimeError):
    """The server could not be started or stopped; the text has the end of its output."""


class AmpsServer:
    """A server for tests. Use it as a context manager, or call `start` and, at the end, `close`.

        with AmpsServer(queues=["work"]) as server:
            client = Client("test", server.uri("json"))

    - topics: topics that the transaction log records: names, regular expressions, or (name, message type). By default,
      all topics. An empty list means no transaction log: nothing is recorded, and bookmarks are not available.
    - queues: names of message queues, or names with elements, `{"work": {"LeasePeriod": "2s"}}`. The message type is
      json unless the element MessageType says otherwise.
    - extra_config: further elements of the configuration, as XML.
    - config: the whole configuration, as text or as the path of a file, instead of the arguments above. `${PORT}` in
      it becomes a free port, `${PORT_name}` another one for each name. Relative paths are in the temporary directory.
    - directory: where the server runs and keeps its files. By default a temporary directory, which `close` removes;
      a directory that is given is kept.

    Raises AmpsServerError if the server cannot be started, ValueError or TypeError for wrong arguments.
    """

    def __init__(
        self,
        *,
        topics: Topics = (".*",),
        queues: Queues = (),
        extra_config: str = "",
        config: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if config is None:
            self._config = configuration_text(topics=topics, queues=queues, extra_config=extra_config)
        else:
            if queues or extra_config:
                raise ValueError("config is the whole configuration: put queues and extra_config into it")
            self._config = config if isinstance(config, str) else Path(config).read_text(encoding="utf-8")
        self._directory = None if directory is None else Path(directory).resolve()
        self._temporary = directory is None
        self._ports: dict[str, ReservedPort] = {}
        self._process: Launched | None = None
        self._pids: list[int] = []

    def __repr__(self) -> str:
        state = f"running, process {self._process.pid}" if self._process is not None else "not running"
        return f"<AmpsServer in {self._directory}: {state}>"

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
        """The directory in which the server runs. Raises AmpsServerError before `start` and after `close`."""
        if self._directory is None:
            raise AmpsServerError("the server has no directory before start() and after close()")
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
    def output(self) -> str:
        """The server's output, of all its starts: its event log, then its standard error."""
        return "".join(
            path.read_text(encoding="utf-8", errors="replace") for path in self._output_paths() if path.exists()
        )

    def _output_paths(self) -> list[Path]:
        return [self.directory / "server.out", self.directory / "server.err"]

    # Life

    def start(self) -> Self:
        """Start the server, and wait until it accepts connections. After `stop` or `kill` it keeps its files and ports.

        Raises AmpsServerError if the server refuses to start, is not ready within 30 s, or is not installed.
        """
        if self._process is not None:
            raise AmpsServerError("the server runs already; stop it, or use restart()")
        package = _server_package()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="amps-testing-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "config.xml"
        config.write_text(self._config, encoding="utf-8")
        names = set(_PORT_NAME.findall(self._config))
        ports = {name: self.port(name.removeprefix("PORT").removeprefix("_")) for name in names}
        with _notifications() as (address, notified):
            self._launch(package, config, ports, address)
            self._wait_until_ready(notified)
        return self

    def _launch(self, package: str, config: Path, ports: dict[str, int], notify_address: str) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "WATCHDOG_USEC"}
        environment["NOTIFY_SOCKET"] = notify_address
        defines = [f"-D{name}={number}" for name, number in ports.items()]
        out, err = self._output_paths()
        try:
            self._process = launch(package, [str(config), *defines], self.directory, out, err, environment)
        except OSError as error:
            raise AmpsServerError(f"the server cannot be started: {error}") from error
        self._pids.append(self._process.pid)
        RUNNING.append(self)

    def _wait_until_ready(self, notified: socket.socket) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if select.select([notified], [], [], _POLL_S)[0] and b"READY=1" in notified.recv(4096):
                return
            code = self._process.poll()
            if code is not None:
                self._forget()
                raise AmpsServerError(f"the server ended with exit code {code} before it was ready{self._tail()}")
            if time.monotonic() > deadline:
                tail = self._tail()
                self.kill()
                raise AmpsServerError(f"the server was not ready after {START_TIMEOUT_S:g} s{tail}")

    def stop(self) -> None:
        """Stop the server in order, as SIGTERM does. No effect if it does not run.

        Raises AmpsServerError if it does not end within 30 s, or ends with an error: a crash that a test has caused.
        """
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        code = process.wait(STOP_TIMEOUT_S)
        if code is None:
            tail = self._tail()
            self.kill()
            raise AmpsServerError(f"the server still ran {STOP_TIMEOUT_S:g} s after SIGTERM{tail}")
        self._end_group(process.pid)
        if code != 0:
            raise AmpsServerError(f"the server ended with exit code {code} after SIGTERM{self._tail()}")

    def kill(self) -> None:
        """End all processes of the server at once, as a power failure does (SIGKILL). No effect if it does not run.

        Returns when no process of it is left, so that its ports and files are free.
        """
        if self._process is not None:
            self._end_group(self._process.pid)

    def restart(self) -> Self:
        """Stop the server in order if it runs, and start it on the same files and ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End the server and remove all its files; a directory that was given is kept. Safe to call again."""
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
                raise AmpsServerError(f"processes of group {group} are left {_END_TIMEOUT_S:g} s after SIGKILL")
            time.sleep(_POLL_S)
        self._forget()

    def _forget(self) -> None:
        self._process = None
        if self in RUNNING:
            RUNNING.remove(self)

    def _tail(self, lines: int = 40) -> str:
        return "\n" + "\n".join(self.output.splitlines()[-lines:])


def _server_package() -> str:
    """Return the directory of the package `amps`. Raises AmpsServerError if it lacks the server."""
    if importlib.util.find_spec("amps.server") is None:
        raise AmpsServerError(
            "tests with amps.testing need the server, which is not installed; it is in the package amps-server: "
            "pip install amps-server"
        )
    import amps

    return next(path for path in amps.__path__ if (Path(path) / "server").is_dir())


@contextlib.contextmanager
def _notifications() -> Iterator[tuple[str, socket.socket]]:
    """Receive messages of the service manager's protocol: the value for NOTIFY_SOCKET, and the socket."""
    name = f"amps-testing-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        yield "@" + name, receiver


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
