"""The guides to queues and workers: two workers share the work, and a message that neither can process becomes a dead
letter.
"""

import subprocess
import sys
from pathlib import Path

from amps.client import Client
from tests.support.documents import GUIDE_TO_QUEUES, GUIDE_TO_WORKERS, block
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


def test_the_guides_workers_in_threads_tasks_and_processes(start_server: StartServer, tmp_path: Path) -> None:
    """The blocks of docs/guide/workers.md as they are, but for the port: each processes orders and ends in order."""
    server = start_server(log_topics=("^orders",), instance_xml=block(GUIDE_TO_QUEUES, "<UnderlyingTopic>", "xml"))
    running: list[subprocess.Popen[bytes]] = []

    def start(containing: str) -> tuple[subprocess.Popen[bytes], Path]:
        number = len(running)
        script, output = tmp_path / f"program_{number}.py", tmp_path / f"output-{number}"
        script.write_text(
            block(GUIDE_TO_WORKERS, containing).replace("localhost:9007", f"127.0.0.1:{server.port()}")
        )
        with output.open("wb") as file:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-P", str(script)],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={"PYTHONPATH": package_path()},
                    cwd=tmp_path,
                )
            )
        return running[-1], output

    def until(output: Path, *words: str) -> None:
        wait_until(lambda: all(word in output.read_text() for word in words), WAIT_S, output.read_text)

    def end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        assert process.wait(WAIT_S) == 0

    try:
        with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
            client.publish("orders", {"id": 1, "side": "buy"})
            process, output = start("concurrency=4")
            until(output, "buy 1\n")
            end(process)
            client.publish("orders", {"id": 2})
            client.publish("orders", {"id": 3, "side": "sell"})
            process, output = start("raise Rejected")
            until(output, "sell 3\n", "an order needs a side")
            reader, letters = start("Failure.of")
            until(letters, 'work 1 Rejected: an order needs a side {"id":2}\n')
            reader.kill()
            end(process)
            client.publish("orders", {"id": 4})
            process, output = start("concurrency=20")
            until(output, "4\n")
            end(process)
            client.publish("orders", {"id": 5})
            process, output = start("processes=2")
            until(output, " 5\n")
            end(process)
            assert output.read_text().endswith("1 orders\n")
            assert client.sow_count("work") == 0
    finally:
        for process in running:
            process.kill()
            process.wait(10)
