"""`amps.testing` as a plugin: whole runs of pytest over the tests of an application."""

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest
pytest_plugins = ["amps.testing"]

@pytest.fixture(scope="session")
def amps_server_options():
    return {"queues": ["work"]}
"""


def run(directory: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over a file of tests."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_application.py").write_text("import pytest\nfrom amps.client import Client\n" + tests)
    options = ["-p", "no:cacheprovider", "-q", "--strict-markers", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(directory)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=directory,
        check=False,
    )


def test_fixtures_give_servers_and_workers_of_xdist_have_their_own(tmp_path: Path) -> None:
    tests = """
uris = set()

def test_one(amps_server):
    with Client("one", amps_server.uri()) as client:
        client.publish("work", "{}")
        assert next(client.subscribe("work")).data == b"{}"

@pytest.mark.amps_server(queues={"other": {}}, topics=["other"])
def test_arguments_of_the_marker(amps_server):
    with Client("two", amps_server.uri()) as client:
        client.publish("other", "{}")
        message = next(client.subscribe("other"))
        assert message.lease_period is not None

@pytest.mark.parametrize("number", range(4))
def test_a_shared_server(amps_server_session, number, worker_id):
    uris.add(amps_server_session.uri())
    assert len(uris) == 1
    with Client(worker_id, amps_server_session.uri()) as client:
        stream = client.subscribe("alone")
        client.publish("alone", worker_id)
        assert next(stream).text == worker_id
        with pytest.raises(ValueError):
            amps_server_session.uri(port="x")
"""
    done = run(tmp_path, tests, "-n", "2")
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_the_report_of_a_failed_test_shows_the_servers_log(tmp_path: Path) -> None:
    tests = """
def test_fails(amps_server):
    while "00-0015" not in amps_server.output:
        pass
    assert False
"""
    done = run(tmp_path, tests)
    assert done.returncode == 1
    assert "AMPS server amps-embedded-" in done.stdout, done.stdout + done.stderr
    assert "00-0015" in done.stdout


def test_the_class_needs_no_pytest(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['pytest'] = None\nimport amps.testing\n"
        "print(amps.testing.__all__, hasattr(amps.testing, 'amps_server'))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["['AmpsServer',", "'AmpsServerError']", "False"]
