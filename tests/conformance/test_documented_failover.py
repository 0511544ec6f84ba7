"""The guide's publisher and subscriber, while their server is killed and started again."""

import subprocess
import sys
from pathlib import Path

from tests.support.documents import GUIDE_TO_FAILOVER, block
from tests.support.server import StartServer, package_path, wait_until

WAIT_S = 60.0


def test_client_46_the_guides_clients_survive_their_server(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §21 46, 53: the blocks of docs/guide/failover.md as they are, but for the port."""
    server = start_server(log_topics=("^orders",))
    processes: dict[str, subprocess.Popen[bytes]] = {}
    outputs = {name: tmp_path / name for name in ("publisher", "subscriber")}

    def numbers() -> list[int]:
        # The clients also log each lost connection.
        return [int(line) for line in outputs["subscriber"].read_text().splitlines() if line.isdigit()]

    try:
        for name, mark in (("subscriber", "orders-watcher"), ("publisher", "orders-feed")):
            program = block(GUIDE_TO_FAILOVER, mark).replace("localhost:9007", f"127.0.0.1:{server.port()}")
            with outputs[name].open("wb") as file:
                processes[name] = subprocess.Popen(
                    [sys.executable, "-P", "-c", program],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={"PYTHONPATH": package_path()},
                )
        for wanted in (50, 200):
            wait_until(lambda wanted=wanted: len(numbers()) >= wanted, WAIT_S, server.excerpt)  # type: ignore[misc]
            server.kill_all()
            server.start()
        assert processes["publisher"].wait(WAIT_S) == 0, outputs["publisher"].read_text()
        wait_until(lambda: len(numbers()) >= 1000, WAIT_S, lambda: outputs["subscriber"].read_text())
        assert numbers() == list(range(1, 1001))
        assert processes["subscriber"].poll() is None
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
