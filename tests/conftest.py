"""Fixtures for tests that run a server: started on demand, always ended; its log is shown when a test fails."""

import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Makes `tests.support` importable when `pytest`, not `python -m pytest`, is the entry point.
sys.path.append(str(Path(__file__).resolve().parents[1]))

# Sessions of Spark in tests are short, and their tables small: full optimisation by the JVM, compiling Java code for
# each query, and verifying the classes of Spark would take longer than they save.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)

from tests.support.certificates import Authority
from tests.support.peers import Peers
from tests.support.server import RUNNING, ServerProcess, StartServer

# A process in the background may have these ignored. Processes that tests start would inherit that, and not stop.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers that are stopped, and checked to end well, with the test."""
    yield from _server_starter(tmp_path)


@pytest.fixture(scope="module")
def start_module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers that the tests of a module share."""
    yield from _server_starter(tmp_path_factory.mktemp("servers"))


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[StartServer]:
    """Make servers that are not started yet, for tests of the start."""
    made: list[ServerProcess] = []

    def make(**options: Any) -> ServerProcess:
        made.append(ServerProcess(tmp_path / f"server-{len(made)}", **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def peers(unique: str) -> Iterator[Peers]:
    """Open raw connections that are closed with the test."""
    with Peers(unique) as opened:
        yield opened


_unique_numbers: dict[str, int] = {}


@pytest.fixture
def unique(request: pytest.FixtureRequest, worker_id: str) -> str:
    """A word that only this test uses, for topics and client names on a shared server."""
    word = re.sub(r"\W+", "_", request.node.name)[:60].strip("_")
    number = _unique_numbers[word] = _unique_numbers.get(word, 0) + 1
    return f"{word}_{worker_id}_{number}"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def _server_starter(directory: Path) -> Iterator[StartServer]:
    started: list[ServerProcess] = []

    def start(**options: Any) -> ServerProcess:
        server = ServerProcess(directory / f"server-{len(started)}", **options)
        started.append(server)
        return server.start()

    try:
        yield start
        for server in started:
            server.stop()
    finally:
        for server in started:
            server.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in RUNNING:
            report.sections.append((f"server {server.directory.name}", server.excerpt()))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply two environment variables.

    AMPS_EXAMPLES_FACTOR multiplies the number of random examples. Long tests are skipped unless AMPS_LONG_TESTS is
    set.
    """
    for item in items if not os.environ.get("AMPS_LONG_TESTS") else ():
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes a minute or more: AMPS_LONG_TESTS=1 runs it"))
    factor = float(os.environ.get("AMPS_EXAMPLES_FACTOR", "1"))
    tests = {getattr(item, "obj", None) for item in items}  # one for all parameters of a test
    for test in tests if factor != 1 else ():
        said = getattr(test, "_hypothesis_internal_use_settings", None)
        if said is not None:
            examples = max(1, round(said.max_examples * factor))
            test._hypothesis_internal_use_settings = hypothesis.settings(said, max_examples=examples)
