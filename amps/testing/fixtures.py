"""Fixtures of pytest with a real server. `amps.testing` has the text for users."""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pytest

from amps.embedded import Server as AmpsServer
from amps.embedded.server import RUNNING

_LOG_LINES = 60


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "amps_server(**arguments): arguments of AmpsServer for the fixture amps_server: topics, queues, config, …",
    )


@pytest.fixture(scope="session")
def amps_server_options() -> Mapping[str, Any]:
    """The arguments of AmpsServer for both fixtures. Override it in conftest.py; by default, none."""
    return {}


@pytest.fixture
def amps_server(request: pytest.FixtureRequest, amps_server_options: Mapping[str, Any]) -> Iterator[AmpsServer]:
    """A server for one test, empty at its start. `@pytest.mark.amps_server(queues=["work"])` adds arguments."""
    marker = request.node.get_closest_marker("amps_server")
    with AmpsServer(**{**amps_server_options, **(marker.kwargs if marker is not None else {})}) as server:
        yield server


@pytest.fixture(scope="session")
def amps_server_session(amps_server_options: Mapping[str, Any]) -> Iterator[AmpsServer]:
    """A server that all tests share; with pytest-xdist, one for each worker. Tests use topics of their own."""
    with AmpsServer(**amps_server_options) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the servers' output to the report of a failed test."""
    report = yield
    if report.failed:
        for server in RUNNING:
            lines = server.output.splitlines()[-_LOG_LINES:]
            report.sections.append((f"AMPS server {server.directory.name}", "\n".join(lines)))
    return report
