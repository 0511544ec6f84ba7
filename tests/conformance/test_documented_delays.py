"""The guide to message queues: its program about delays, and the option of `amps publish`."""

import subprocess
import sys
import time

from amps.client import Client
from tests.support.documents import GUIDE_TO_QUEUES, block
from tests.support.queues import options, queue_xml
from tests.support.server import StartServer, package_path

WAIT_S = 30.0


def test_the_guides_delays(start_server: StartServer) -> None:
    """queue_guarantees.md §1: the consumer gets each message at its time, and gives one back for a while."""
    server = start_server(**options(queue_xml("work", "orders"), log_topics=("^orders$",)))
    program = block(GUIDE_TO_QUEUES, "not_before").replace("localhost:9007", f"127.0.0.1:{server.port()}")
    environment = {"PYTHONPATH": package_path()}
    subprocess.run([sys.executable, "-P", "-c", program], env=environment, timeout=WAIT_S, check=True)
    address = f"127.0.0.1:{server.port()}"
    subprocess.run(
        [sys.executable, "-P", "-m", "amps.cli.main", "publish", "-server", address, "-topic", "orders",
         "-type", "json", "-delay", "200ms"],
        input=b'{"id":7,"side":"buy"}\n', env=environment, timeout=WAIT_S, check=True,
    )  # fmt: skip
    with Client(uri=f"tcp://{address}/amps/json") as client:
        found = []
        for message in client.subscribe("work", options="max_backlog=10", timeout=WAIT_S):
            assert message.not_before is not None
            assert time.time() >= message.not_before
            found.append(message.json()["id"])
            message.ack("cancel,delay=100ms" if len(found) == 1 else "")
            if len(found) == 4:
                break
        assert sorted(found) == sorted([7, 8, 9, found[0]])
