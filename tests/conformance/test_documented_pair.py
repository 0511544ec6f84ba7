"""README's pair that survives a kill: its configurations and its program, with other ports."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.cli.demo.server import DemoServer
from tests.support.documents import CHECKOUT, README, block
from tests.support.ports import release_port, reserve_port
from tests.support.server import server_environment

PORTS = ("9007", "9008", "9107", "9108", "8085", "8086")


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    reserved = {port: reserve_port() for port in PORTS}
    yield {port: str(other) for port, other in reserved.items()}
    for other in reserved.values():
        release_port(other)


def with_ports(text: str, ports: dict[str, str]) -> str:
    return re.sub("|".join(PORTS), lambda found: ports[found[0]], text)


def test_the_pair_of_readme_survives_the_kill_of_each_instance(
    tmp_path: Path, ports: dict[str, str]
) -> None:
    """replication.md §21, F1, F3, F4: the publisher and the reader go on at the other instance, each time."""
    servers = []
    for name, port in (("east", "9007"), ("west", "9008")):
        text = with_ports((CHECKOUT / "conf" / f"pair-{name}.xml").read_text(), ports)
        configuration = tmp_path / f"{name}.xml"
        configuration.write_text(text.replace("./data", str(tmp_path / "data")))
        servers.append(DemoServer(tmp_path / name, int(ports[port]), configuration))
    program = with_ports(block(README, "pair-feed"), ports).replace("ORDERS = 3000", "ORDERS = 1000")
    assert "ORDERS = 1000" in program
    try:
        for server in servers:
            server.start()
        with subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=server_environment(),
        ) as running:
            assert running.stdout is not None
            said = []
            try:
                for line in running.stdout:
                    said.append(line)
                    for number, server in ((200, servers[0]), (600, servers[1])):
                        if line.startswith(f"{number} published"):
                            server.kill()
                            server.start()
                running.wait(30)
            finally:
                running.kill()
        assert said[-1] == "all orders, once and in order: True\n", "".join(said)
    finally:
        for server in servers:
            server.stop()
