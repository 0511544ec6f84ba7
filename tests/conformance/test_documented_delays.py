"""The guide to message queues: its program about delays, and the option of `amps publish`."""

import subprocess
import sys
import time

import amps
from amps.client import Client
from tests.support.documents import GUIDE_TO_QUEUES, block
from tests.support.queues import options, queue_xml
from tests.support.server import StartServer, package_path

WAIT_S = 30.0


def test_the_guides_recurring_message() -> None:
    """queue_guarantees.md §1.11: each hour subscribers of the topic get it, and a worker ten minutes later."""
    queues = {"work": {"UnderlyingTopic": "orders"}}
    actions = block(GUIDE_TO_QUEUES, "<Delay>", "xml")
    with (
        amps.Server(queues=queues, extra_config=actions, clock="manual") as server,
        Client("a", server.uri()) as client,
    ):
        subscriber, worker = client.subscribe("orders"), client.subscribe("work", max_backlog=5)
        for _ in range(2):
            server.advance(3600)
            order = subscriber.get(WAIT_S)
            assert order is not None
            assert order.not_before is not None
            assert abs(order.not_before - server.time() - 600) < 60
            assert worker.get(0) is None
            server.advance(601)
            delivered = worker.get(WAIT_S)
            assert delivered is not None
            assert delivered.data == order.data
            assert delivered.json()["id"].startswith("report-1")
            delivered.ack()


def test_the_guides_delays(start_server: StartServer) -> None:
    """client.md §21, 74 and 77: the consumer gets each message at its time, and gives one back for a while."""
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
