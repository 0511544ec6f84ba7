"""Servers forked from a template behave as started ones, and none is left behind."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.server import ServerProcess, server_environment, wait_until
from tests.support.template import Forked, Template


def fork(template: Template, directory: Path) -> tuple[Forked, Path]:
    """A server, and its output."""
    server = ServerProcess(directory / "server")
    config = server.directory / "config.xml"
    config.write_text(server.config_xml())
    with (server.directory / "said").open("wb") as said:
        return template.fork(server.directory, config, said.fileno(), said.fileno()), server.directory / "said"


def test_the_end_of_a_server_is_reported(tmp_path: Path) -> None:
    template = Template(server_environment())
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        server, said = fork(template, tmp_path / str(number))
        wait_until(lambda: "00-0015" in said.read_text(), 30, said.read_text)  # noqa: B023
        assert (server.poll(), os.getsid(server.pid)) == (None, server.pid)
        assert os.readlink(f"/proc/{server.pid}/cwd") == str(said.parent)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.01)
        server.send_signal(number)
        assert server.wait(30) == server.poll() == code


def test_servers_end_with_their_template(tmp_path: Path) -> None:
    template = Template(server_environment())
    server, said = fork(template, tmp_path)
    wait_until(lambda: "00-0015" in said.read_text(), 30, said.read_text)
    process = psutil.Process(server.pid)
    everyone = [process, *process.children(recursive=True)]
    template._process.kill()
    assert psutil.wait_procs(everyone, 30)[1] == []
