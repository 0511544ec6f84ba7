"""The guide to the command line: its blocks, as a reader would run them."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import GUIDE_TO_COMMAND_LINE, block
from tests.support.ports import release_port, reserve_port
from tests.support.server import StartServer
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment

EXPLAIN = [sys.executable, "-P", "-m", "amps.cli.explain.command"]


def shell(commands: str, directory: Path) -> list[str]:
    """Run a block with an empty configuration of its own. The lines of its output."""
    env = {name: value for name, value in environment().items() if not name.startswith("AMPS_")}
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**env, "XDG_CONFIG_HOME": str(directory / "config-home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The working directory of a reader who has the files that the guide names."""
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "ca.pem").touch()
    return tmp_path


def test_client_17_contexts_and_output_formats(start_server: StartServer, directory: Path) -> None:
    """client.md §17: the blocks of docs/guide/command-line.md, but for the port and the place of the installation."""
    server = start_server(log_topics=[".*"])

    def run(containing: str) -> list[str]:
        commands = block(GUIDE_TO_COMMAND_LINE, containing, "sh")
        commands = commands.replace(".venv/bin/amps", shlex.join(COMMAND))
        return shell(commands.replace("localhost:9007", f"127.0.0.1:{server.port()}"), directory)

    lines = run("amps context add local")
    assert lines[0] == "added context local; it is the current one"
    assert sum(line.startswith("Successfully connected") for line in lines) == 2
    assert re.search(r"^type +json", "\n".join(lines), re.MULTILINE)
    assert "secret" not in "\n".join(lines)
    lines = run("-output pretty")
    assert lines[0].startswith("total messages published: 2")
    bodies = ['{"id":1,"side":"buy","price":10.50}', '{"id":2,"side":"sell"}']
    assert lines[1:3] == bodies
    assert [json.loads(line)["data"]["id"] for line in lines[3:5]] == [1, 2]
    assert '    "price": 10.50' in lines
    table = lines.index("id  price")
    assert lines[table : table + 3] == ["id  price", "1   10.50", "2"]
    for line, body in zip(lines[-2:], bodies, strict=True):
        assert re.fullmatch(rf"\d+\|\d\| {len(body)} {re.escape(body)}", line)


def test_top_and_ampserr(start_server: StartServer, directory: Path) -> None:
    port = reserve_port()
    try:
        start_server(instance_xml=f"<Admin><InetAddr>{port}</InetAddr></Admin>")
        commands = block(GUIDE_TO_COMMAND_LINE, "amps top", "sh").splitlines()
        (once,) = (line for line in commands if "-once" in line)
        once = once.replace(".venv/bin/amps", shlex.join(COMMAND)).replace("8085", str(port))
        assert json.loads("".join(shell(once, directory)))["instance"]["name"] == "Test"
    finally:
        release_port(port)
    explained = block(GUIDE_TO_COMMAND_LINE, "ampserr 07-0013", "sh")
    lines = shell(explained.replace("ampserr ", f"{shlex.join(EXPLAIN)} "), directory)
    assert "AMPS Message 07-0013 [level = info]" in lines
    assert "AMPS Reason bad filter [reason of a refused command]" in lines


def test_the_guide_names_every_shell(directory: Path) -> None:
    commands = block(GUIDE_TO_COMMAND_LINE, "amps completion", "sh").splitlines()
    (directory / "amps").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (directory / "amps").chmod(0o755)
    path = "PATH=" + shlex.quote(f"{directory}:{os.environ['PATH']}")
    assert "_amps_completion" in "".join(shell(f"{path}\n{commands[0]}\ncomplete -p amps", directory))
    assert "amps completion fish | source" in commands[1]
