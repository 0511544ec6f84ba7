"""The guide's queue: two workers of its example share the work, and a message that neither can process becomes a dead
letter.
"""

import subprocess
import sys
from pathlib import Path

from amps.client import Client
from tests.support.documents import GUIDE_TO_QUEUES, block
from tests.support.server import StartServer, package_path, wait_until

WAIT_S = 30.0


def test_queues_34_the_guides_workers_share_a_queue_and_leave_dead_letters(
    start_server: StartServer, tmp_path: Path
) -> None:
    """queues.md §15, §24 34: the blocks of docs/guide/message-queues.md as they are, but for the port."""
    server = start_server(
        log_topics=("^orders",),
        instance_xml=block(GUIDE_TO_QUEUES, "<UnderlyingTopic>", "xml")
        + block(GUIDE_TO_QUEUES, "amps-action-on-sow-expire", "xml"),
    )
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    program = block(GUIDE_TO_QUEUES, "max_backlog=100")
    program = program.replace("localhost:9007", f"127.0.0.1:{server.port()}")
    outputs = [tmp_path / f"worker-{number}" for number in range(2)]
    workers = []
    try:
        for output in outputs:
            with output.open("wb") as file:
                workers.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-c", program],
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        env={"PYTHONPATH": package_path()},
                    )
                )
        wait_until(lambda: len(server.log.search("to 'work'")) == 2, WAIT_S, server.excerpt)
        with Client(uri=uri) as client:
            for number in range(20):
                client.publish("orders", {"id": number, "side": "buy"})
            client.publish("orders", {"id": 20})  # no worker can process it
            client.flush()
            letters = client.bookmark_subscribe("orders-given-up", "epoch")
            letter = letters.get(WAIT_S)
            assert letter is not None
            assert letter.json() == {"why": "max_deliveries", "order": {"id": 20}}
            wait_until(
                lambda: sum(output.read_text().count("buy") for output in outputs) == 20,
                WAIT_S,
                lambda: "\n".join(output.read_text() for output in outputs),
            )
            assert letters.get(0.2) is None
        said = "".join(output.read_text() for output in outputs)
        assert said.count("goes back to the queue: KeyError('side')") == 5
        assert [worker.poll() for worker in workers] == [None, None]
        assert not server.log.find("02-0025")
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(10)
