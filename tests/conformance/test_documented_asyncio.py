"""The programs of the guides to asyncio and to the documented API, as they are, but for the port."""

import signal
import subprocess
import sys

from amps.client import EPOCH, Client
from tests.support.documents import GUIDE_TO_ASYNCIO, GUIDE_TO_PORTING, block
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer, package_path, wait_until

WAIT_S = 30.0


def program(server: ServerProcess, document: str, mark: str) -> list[str]:
    text = block(document, mark).replace("localhost:9007", f"127.0.0.1:{server.port()}")
    return [sys.executable, "-P", "-c", text]


def output_of(command: list[str]) -> str:
    return subprocess.run(
        command, env={"PYTHONPATH": package_path()}, capture_output=True, text=True, timeout=WAIT_S, check=True
    ).stdout


def test_the_guides_asyncio_client_publishes_and_replays(start_server: StartServer) -> None:
    """client.md §19.6"""
    server = start_server(log_topics=("^orders",))
    assert output_of(program(server, GUIDE_TO_ASYNCIO, "async-feed")) == "1\n2\n3\n"


def test_the_guides_asyncio_worker_drains_at_its_end(start_server: StartServer) -> None:
    """client.md §19.6, §21 40"""
    server = start_server(**options(queue_xml("work", "T", LeasePeriod="30s"), log_topics=("^T$", "^done$")))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    with subprocess.Popen(
        program(server, GUIDE_TO_ASYNCIO, "async-worker"),
        env={"PYTHONPATH": package_path()},
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            with Client("feed", uri) as client:
                for number in range(100):
                    client.publish("T", {"id": number})
                client.flush()
                done = client.bookmark_subscribe("done", EPOCH)
                results = {done.get(WAIT_S).json()["id"] for _ in range(100)}  # type: ignore[union-attr]
                assert results == set(range(100))
                worker.send_signal(signal.SIGTERM)
                said, _ = worker.communicate(timeout=WAIT_S)
                assert worker.returncode == 0
                assert sorted(int(line) for line in said.split()) == list(range(100))
                wait_until(lambda: client.sow("work").to_list() == [], WAIT_S, server.excerpt)
        finally:
            worker.kill()


def test_the_guides_ported_program_runs(start_server: StartServer) -> None:
    """client.md §19.12"""
    server = start_server(log_topics=("^orders",))
    assert output_of(program(server, GUIDE_TO_PORTING, "amps.compat")) == '{"id": 7}\n'
