"""A whole server under test: configuration, process tree, log, signals.

`ServerProcess` writes a configuration file from keyword options, runs `amps.server.main` on it in a session of its own,
and waits for the ready marker. A server with the environment of the tests is forked from a process that has imported it
(`template`), which saves most of the time of a start. Others are started by `python -m`, such as those with patches.
Afterwards `ServerProcess` is responsible for the tree. `stop` fails when a
process was left behind, did not end with exit code 0, or had died and been replaced while the test ran (a crash that
the supervisor repaired is still a crash). Tests that kill processes use the `kill_…` methods, which record that.

Every server alive is in `RUNNING`, so that a failing test can show the last lines of its log.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

import psutil

from tests.support.ports import release_port, reserve_port
from tests.support.template import Forked, Template

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.005

TEMPLATES_MAX = 3
"""Few tests change the environment for good, and a template stays until the end."""

RUNNING: list["ServerProcess"] = []
_TEMPLATES: list[Template] = []

_RECORD = re.compile(
    r"(?P<timestamp>\d{4}-\d\d-\d\dT\S+) \[(?P<thread>\d+)\] "
    r"(?P<level>\w+): (?P<id>[0-9A-F]{2}-\d{4}) ?(?P<text>.*)",
)


@dataclass(frozen=True)
class Transport:
    """One `Transports/Transport`; a TCP transport gets a reserved port of its own."""

    name: str = "json"
    type: str = "tcp"
    message_type: str | None = "json"
    protocol: str = "amps"
    host: str | None = "127.0.0.1"
    """Address part of `InetAddr`; None for the port alone."""
    socket_path: Path | None = None
    extra_xml: str = ""

    def to_xml(self, port: int | None) -> str:
        parts = [
            _element("Name", self.name),
            _element("Type", self.type),
            _element("Protocol", self.protocol),
        ]
        if self.message_type is not None:
            parts.append(_element("MessageType", self.message_type))
        if port is not None:
            parts.append(_element("InetAddr", str(port) if self.host is None else f"{self.host}:{port}"))
        if self.socket_path is not None:
            parts.append(_element("FileName", str(self.socket_path)))
        return f"<Transport>{''.join(parts)}{self.extra_xml}</Transport>"


@dataclass(frozen=True)
class ServerOptions:
    """The contents of the configuration file. `restart` can change any of it."""

    name: str = "Test"
    transports: Sequence[Transport] = (Transport(),)
    log_topics: Sequence[str | tuple[str, str]] | None = None
    """Names, or (name, message type), of recorded topics; None = no `TransactionLog` block at all."""
    journal_size: str = "10MB"
    journal_xml: str = ""
    """Further elements of `TransactionLog`."""
    flush_interval: str | None = "1ms"
    """Short, so that tests need not wait for partly filled batches; None for the server's default."""
    authentication_xml: str = ""
    entitlement_xml: str = ""
    modules_xml: str = ""
    instance_xml: str = ""
    """Further elements of the instance."""
    transport_workers: int | None = 2
    log_level: str = "info"
    environment: Mapping[str, str] = field(default_factory=dict)
    command_prefix: Sequence[str] = ()
    """Arguments before the server's command, of a program that becomes it by `exec`."""
    module: str = "amps.server.main"
    """The module that is run; `tests.support.managed` takes requests about journals."""


def module_xml(element: str, module: str, **options: str | Sequence[str]) -> str:
    """`<element><Module>…</Module><Options>…</Options></element>`."""
    inner = _element("Module", module)
    if options:
        inner += f"<Options>{_options_xml(options)}</Options>"
    return f"<{element}>{inner}</{element}>"


def loaded_module_xml(name: str, library: str) -> str:
    """One entry of `Modules`."""
    return f"<Module>{_element('Name', name)}{_element('Library', library)}</Module>"


@dataclass(frozen=True)
class LogRecord:
    """One record of the server's event log."""

    timestamp: str
    thread: int
    level: str
    id: str
    text: str
    """May span several lines."""


class ServerLog:
    """The records on the server's standard output, over all its starts on this directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def text(self) -> str:
        return self.path.read_text(errors="replace") if self.path.exists() else ""

    def records(self) -> list[LogRecord]:
        found: list[LogRecord] = []
        for line in self.text().splitlines():
            match = _RECORD.match(line)
            if match is not None:
                found.append(
                    LogRecord(
                        match["timestamp"], int(match["thread"]), match["level"], match["id"], match["text"]
                    )
                )
            elif found:
                last = found[-1]
                found[-1] = LogRecord(
                    last.timestamp, last.thread, last.level, last.id, f"{last.text}\n{line}"
                )
        return found

    def find(self, record_id: str, *texts: str) -> list[LogRecord]:
        """Records with this id whose text holds all of `texts`."""
        return [r for r in self.records() if r.id == record_id and all(text in r.text for text in texts)]

    def search(self, *texts: str) -> list[LogRecord]:
        """Records of any id whose text holds all of `texts`, whatever their case."""
        wanted = [text.lower() for text in texts]
        return [r for r in self.records() if all(text in r.text.lower() for text in wanted)]

    def wait_for(
        self, record_id: str, *texts: str, timeout_s: float = 10.0, count: int = 1
    ) -> list[LogRecord]:
        """`find`, waiting until at least `count` records are there."""
        wait_until(
            lambda: len(self.find(record_id, *texts)) >= count,
            timeout_s,
            lambda: f"no record {record_id} with {texts}; same id: {[r.text for r in self.find(record_id)]}",
        )
        return self.find(record_id, *texts)


class ServerProcess:
    """One server in one directory; can be stopped, killed and started again there."""

    def __init__(self, directory: Path, *, config_xml: str | None = None, **options: Any) -> None:
        self.directory = directory
        self.options = ServerOptions(**options)
        self.log = ServerLog(directory / "stdout.log")
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._config_xml = config_xml
        self._ports: dict[str, int] = {}
        self._tree: dict[int, str] = {}
        self._disturbed = False
        directory.mkdir(parents=True, exist_ok=True)

    # Configuration

    @property
    def journal_directory(self) -> Path:
        return self.directory / "journal"

    def journals(self) -> list[Path]:
        return sorted(self.journal_directory.glob("*.journal"))

    def port(self, transport: str | None = None) -> int:
        """The port of a transport, by default of the first."""
        name = self.options.transports[0].name if transport is None else transport
        if name not in self._ports:
            self._ports[name] = reserve_port()
        return self._ports[name]

    def transport(self, name: str | None = None) -> Transport:
        for transport in self.options.transports:
            if name in (None, transport.name):
                return transport
        raise KeyError(name)

    def config_xml(self) -> str:
        """The text of the configuration file."""
        if self._config_xml is not None:
            return self._config_xml
        o = self.options
        transports = "".join(
            t.to_xml(None if t.type == "amps-unix" else self.port(t.name)) for t in o.transports
        )
        parts = [
            _element("Name", o.name),
            o.instance_xml,
            f"<Modules>{o.modules_xml}</Modules>" if o.modules_xml else "",
            o.authentication_xml,
            o.entitlement_xml,
            f"<Transports>{transports}</Transports>",
            self._transaction_log_xml(),
            f"<Logging><Target><Protocol>stdout</Protocol><Level>{o.log_level}</Level></Target></Logging>",
        ]
        if o.transport_workers is not None:
            parts.append(f"<Tuning><Transport><Workers>{o.transport_workers}</Workers></Transport></Tuning>")
        return "<AMPSConfig>\n" + "\n".join(part for part in parts if part) + "\n</AMPSConfig>\n"

    def _transaction_log_xml(self) -> str:
        o = self.options
        if o.log_topics is None:
            return ""
        topics = [(topic, "json") if isinstance(topic, str) else topic for topic in o.log_topics]
        return (
            "<TransactionLog>"
            + _element("JournalDirectory", str(self.journal_directory))
            + _element("JournalSize", o.journal_size)
            + (_element("FlushInterval", o.flush_interval) if o.flush_interval is not None else "")
            + o.journal_xml
            + "".join(
                f"<Topic>{_element('Name', name)}{_element('MessageType', message_type)}</Topic>"
                for name, message_type in topics
            )
            + "</TransactionLog>"
        )

    # Life

    def start(self) -> Self:
        """Start and wait until the server reports that it is ready."""
        if self.try_start() is not None:
            raise AssertionError(f"the server refused to start\n{self.excerpt()}")
        return self

    def start_refused(self) -> str:
        """Start a server that must refuse to: check exit code 1, and return the output of this start."""
        said = self.try_start()
        if said is None:
            self.kill_all()
            raise AssertionError(f"the server should have refused to start\n{self.excerpt()}")
        return said

    def try_start(self) -> str | None:
        """Start; return None when the server is ready, or the output of this start when it refused (exit code 1)."""
        said_before = [len(text) for text in self._outputs()]
        ready_before = len(self.log.find("00-0015"))
        process = self.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"00-0015" not in self.log.path.read_bytes() or len(self.log.find("00-0015")) <= ready_before:
            if process.poll() is not None:
                said = "".join(
                    text[before:] for text, before in zip(self._outputs(), said_before, strict=True)
                )
                self._forget()
                assert process.returncode == 1, f"expected exit code 1, got {process.returncode}\n{said}"
                return said
            if time.monotonic() > deadline:
                self.kill_all()
                raise AssertionError(f"neither ready nor ended after {START_TIMEOUT_S} s\n{self.excerpt()}")
            time.sleep(POLL_S)
        self._tree = self._children()
        return None

    def launch(self) -> subprocess.Popen[bytes] | Forked:
        """Start the process without waiting for anything."""
        assert self.process is None, "already started"
        config = self.directory / "config.xml"
        config.write_text(self.config_xml())
        with self.log.path.open("ab") as output, (self.directory / "stderr.log").open("ab") as errors:
            template = self._template()
            if template is not None:
                self.process = template.fork(self.directory, config, output.fileno(), errors.fileno())
            else:
                self.process = subprocess.Popen(
                    [
                        *self.options.command_prefix,
                        *(sys.executable, "-P", "-m", self.options.module, str(config)),
                    ],
                    cwd=self.directory,
                    env={**server_environment(), **self.options.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=_end_with_the_tests,
                )
        self._disturbed = False
        RUNNING.append(self)
        return self.process

    def _template(self) -> Template | None:
        """The process to fork this server from; None: it must be started by its command."""
        if (
            self.options.environment
            or self.options.command_prefix
            or self.options.module != ServerOptions.module
        ):
            return None
        environment = server_environment()
        for template in _TEMPLATES:
            if template.environment == environment:
                return template
        if len(_TEMPLATES) == TEMPLATES_MAX:
            return None
        _TEMPLATES.append(Template(environment))
        return _TEMPLATES[-1]

    def stop(self, signal_number: int = signal.SIGTERM, *, expected: int = 0) -> None:
        """End the server in order and check that it ended well, or with the expected exit code. Do nothing if it does
        not run.
        """
        if self.process is None:
            return
        problems = self._problems_while_running()
        survivors = self._everyone()
        self.process.send_signal(signal_number)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
            if code != expected:
                problems.append(f"exit code {code} after signal {signal_number}")
        except subprocess.TimeoutExpired:
            problems.append(f"still running {STOP_TIMEOUT_S} s after signal {signal_number}")
        left = _wait_until_ended(survivors, 5)
        if left:
            problems.append(f"processes left behind: {left}")
        excerpt = self.excerpt() if problems else ""
        self.kill_all()
        assert not problems, f"{'; '.join(problems)}\n{excerpt}"

    def restart(self, **changes: Any) -> Self:
        """Stop in order, change options, start again on the same directory."""
        self.stop()
        self.options = ServerOptions(**{**vars(self.options), **changes})
        return self.start()

    def check_undisturbed(self) -> None:
        """Fail if the server or one of its processes has died although no test killed it."""
        problems = self._problems_while_running() if self.process is not None else []
        assert not problems, f"{'; '.join(problems)}\n{self.excerpt()}"

    def close(self) -> None:
        """Release everything; ends the server without checks if it still runs."""
        self.kill_all()
        for port in self._ports.values():
            release_port(port)
        self._ports.clear()

    # Processes

    def pids(self, title: str | None = None) -> list[int]:
        """The children of the supervisor, optionally only those whose process title begins with the text."""
        return [pid for pid, name in self._children().items() if title is None or name.startswith(title)]

    def core_pid(self) -> int:
        return self._only("amps: core")

    def transport_pid(self, number: int) -> int:
        return self._only(f"amps: transport {number}")

    def transport_pids(self) -> list[int]:
        return self.pids("amps: transport")

    def kill_core(self) -> None:
        self.kill_process(self.core_pid())

    def kill_transport(self, number: int) -> None:
        self.kill_process(self.transport_pid(number))

    def kill_process(self, pid: int) -> None:
        """SIGKILL one process of the tree; from now on the death of a process is no error."""
        self._disturbed = True
        os.kill(pid, signal.SIGKILL)

    def expect_disturbance(self) -> None:
        """From now on the end of a process is no error: the test removes something that processes need."""
        self._disturbed = True

    def kill_all(self) -> None:
        """SIGKILL the whole tree at once."""
        if self.process is None:
            return
        everyone = self._everyone()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)
        _wait_until_ended(everyone, 10)
        self._forget()

    def wait_for_new_tree(self, old_pids: Iterable[int], timeout_s: float = 20.0) -> None:
        """Wait until none of the old children is left and there are as many again as before."""
        old = set(old_pids)
        wanted = len(self._tree)

        def replaced() -> bool:
            current = self._children()
            return len(current) >= wanted and not old & set(current)

        wait_until(
            replaced, timeout_s, lambda: f"processes not replaced: {self._children()}\n{self.excerpt()}"
        )
        self._tree = self._children()

    # Diagnosis

    def output(self) -> str:
        """The output of all starts."""
        return "".join(self._outputs())

    def _outputs(self) -> list[str]:
        errors = self.directory / "stderr.log"
        return [self.log.text(), errors.read_text(errors="replace") if errors.exists() else ""]

    def excerpt(self, lines: int = 60) -> str:
        """The end of the output, for error messages."""
        stdout, stderr = (text.splitlines()[-lines:] for text in self._outputs())
        return "\n".join(["--- stdout", *stdout, "--- stderr", *stderr])

    def anonymous_bytes(self) -> int:
        """Private memory of all processes; mapped journal files are not counted."""
        return self._memory_bytes("Anonymous")

    def resident_bytes(self) -> int:
        """Memory of all processes as `top` shows it, mapped files included."""
        return self._memory_bytes("Rss")

    def _memory_bytes(self, kind: str) -> int:
        total = 0
        for process in self._everyone():
            try:
                rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            except OSError:
                continue
            match = re.search(rf"^{kind}:\s+(\d+) kB", rollup, re.MULTILINE)
            total += int(match[1]) * 1024 if match else 0
        return total

    def _everyone(self) -> list[psutil.Process]:
        assert self.process is not None
        try:
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return [psutil.Process(pid) for pid in self._tree if psutil.pid_exists(pid)]

    def _children(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for process in self._everyone()[1:]:
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
            except psutil.NoSuchProcess:
                continue
        return found

    def _only(self, title: str) -> int:
        matching = self.pids(title)
        assert len(matching) == 1, f"expected one process {title!r}, there are {self._children()}"
        return matching[0]

    def _problems_while_running(self) -> list[str]:
        assert self.process is not None
        if self.process.poll() is not None:
            return [f"the server has ended with {self.process.returncode}"]
        if self._disturbed:
            return []
        children = self._children()
        gone = {pid: title for pid, title in self._tree.items() if pid not in children}
        return [f"processes died while the server ran: {gone}"] if gone else []

    def _forget(self) -> None:
        self.process = None
        if self in RUNNING:
            RUNNING.remove(self)


StartServer = Callable[..., ServerProcess]
"""The type of the fixtures that start servers: options in, running server out."""


def wait_until(condition: Callable[[], bool], timeout_s: float, explain: Callable[[], str] | str) -> None:
    """Poll until the condition holds; fail with the explanation when it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(explain if isinstance(explain, str) else explain())
        time.sleep(POLL_S)


_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _end_with_the_tests() -> None:
    """Runs in the new process: the servers of a killed test run must end, too."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ended(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until processes have ended, reaped or not; return those that have not."""
    deadline = time.monotonic() + timeout_s
    left = list(processes)
    while left := [process for process in left if _is_alive(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return left


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def amps_server(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the server's command to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "amps.server.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": package_path(), **environment},
        check=False,
    )


def server_environment() -> dict[str, str]:
    """The environment of servers, if a test adds nothing to it."""
    environment = {**os.environ, "PYTHONPATH": package_path()}
    environment.pop("PYTEST_CURRENT_TEST", None)
    return environment


def package_path() -> str:
    """The directory from which the server process must import the package: the one that this process uses.

    The directory of the tests follows it, since a process may be a part of the tests. That order keeps an unbuilt
    checkout from being imported in place of the package.
    """
    import amps

    paths = [str(Path(path).resolve().parent) for path in amps.__path__]
    tests = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([*paths, os.environ.get("PYTHONPATH", ""), tests]).replace(
        os.pathsep * 2, os.pathsep
    )


def numbered_bodies(count: int, start: int = 1, padding_bytes: int = 0) -> list[bytes]:
    """JSON bodies `{"n":…}` that contain their number, padded if they are to be large."""
    padding = {"pad": "x" * padding_bytes} if padding_bytes else {}
    return [json.dumps({"n": n, **padding}).encode() for n in range(start, start + count)]


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def _options_xml(options: Mapping[str, str | Sequence[str]]) -> str:
    parts: list[str] = []
    for name, values in options.items():
        parts += [_element(name, value) for value in ([values] if isinstance(values, str) else values)]
    return "".join(parts)
