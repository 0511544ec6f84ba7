"""The guides to queues and workers: two workers share the work, and a message that neither can process becomes a dead
letter.
"""

import subprocess
import sys
from pathlib import Path

from amps.client import Client
from tests.support.documents import GUIDE_TO_QUEUES, GUIDE_TO_WORKERS, block
from tests.support.programs import WAIT_S, programs
from tests.support.server import StartServer, package_path, wait_until


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
    with programs(GUIDE_TO_QUEUES, tmp_path, server.port()) as guide:
        workers = [guide.start("max_backlog=100") for _ in range(2)]

        def said() -> str:
            return "".join(worker.output for worker in workers)

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
            wait_until(lambda: said().count("buy") == 20, WAIT_S, said)
            assert letters.get(0.2) is None
        assert said().count("goes back to the queue: KeyError('side')") == 5
        assert [worker.process.poll() for worker in workers] == [None, None]
        assert not server.log.find("02-0025")


def test_the_guides_program_with_consume_handles_a_queue(start_server: StartServer, tmp_path: Path) -> None:
    """The block of docs/guide/message-queues.md as it is, but for the port: it ends when it is told to."""
    server = start_server(log_topics=("^orders",), instance_xml=block(GUIDE_TO_QUEUES, "<UnderlyingTopic>", "xml"))
    program = block(GUIDE_TO_QUEUES, ".consume(").replace("localhost:9007", f"127.0.0.1:{server.port()}")
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={"PYTHONPATH": package_path()},
        )
    try:
        with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
            for number in range(20):
                client.publish("orders", {"id": number, "side": "buy"})
            client.flush()
        wait_until(lambda: output.read_text().count("buy") == 20, WAIT_S, output.read_text)
        process.communicate(b"\n", WAIT_S)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(WAIT_S)


def test_the_guides_queue_keeps_the_order_of_a_customer(start_server: StartServer, tmp_path: Path) -> None:
    """queue_guarantees.md §7, 11: the blocks of docs/guide/message-queues.md as they are, but for the port.

    While a client holds the first order of a customer, the workers get those of the other customer only.
    """
    server = start_server(log_topics=("^orders",), instance_xml=block(GUIDE_TO_QUEUES, "<OrderingKey>", "xml"))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    with programs(GUIDE_TO_QUEUES, tmp_path, server.port()) as guide, Client(uri=uri) as client:
        with Client(uri=uri) as holder:
            held = holder.subscribe("orders-by-customer", options="max_backlog=1")
            for number in range(20):
                client.publish("orders-by-customer", {"id": number, "customer": "ab"[number % 2]})
            client.flush()
            first = held.get(WAIT_S)
            assert first is not None
            assert first.json() == {"id": 0, "customer": "a"}
            workers = [guide.start('order["customer"]') for _ in range(2)]

            def said() -> list[str]:
                return [line for worker in workers for line in worker.output.splitlines()]

            wait_until(lambda: len(said()) == 10, WAIT_S, lambda: str(said()))
            assert sorted(said()) == sorted(f"b {number}" for number in range(1, 20, 2))
        wait_until(lambda: len(said()) == 20, WAIT_S, lambda: str(said()))
        for worker in workers:
            lines = [line for line in worker.output.splitlines() if line.startswith("a")]
            assert lines == sorted(lines, key=lambda line: int(line[2:]))


def test_the_guides_workers_in_threads_tasks_and_processes(start_server: StartServer, tmp_path: Path) -> None:
    """The blocks of docs/guide/workers.md as they are, but for the port: each processes orders and ends in order."""
    server = start_server(log_topics=("^orders",), instance_xml=block(GUIDE_TO_QUEUES, "<UnderlyingTopic>", "xml"))
    with (
        programs(GUIDE_TO_WORKERS, tmp_path, server.port()) as guide,
        Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client,
    ):
        client.publish("orders", {"id": 1, "side": "buy"})
        worker = guide.start("concurrency=4")
        worker.until("buy 1\n")
        worker.end()
        client.publish("orders", {"id": 2})
        client.publish("orders", {"id": 3, "side": "sell"})
        worker = guide.start("raise Rejected")
        worker.until("sell 3\n", "an order needs a side")
        letters = guide.start("Failure.of")
        letters.until('work 1 Rejected: an order needs a side {"id":2}\n')
        letters.kill()
        worker.end()
        client.publish("orders", {"id": 4})
        worker = guide.start("concurrency=20")
        worker.until("4\n")
        worker.end()
        client.publish("orders", {"id": 5})
        worker = guide.start("processes=2")
        worker.until(" 5\n")
        assert worker.end().endswith("1 orders\n")
        assert client.sow_count("work") == 0


def test_the_guides_transactions_give_each_result_once(start_server: StartServer, tmp_path: Path) -> None:
    """queue_guarantees.md §7, 18: the block of docs/guide/workers.md, killed again and again."""
    server = start_server(log_topics=("^orders",), instance_xml=block(GUIDE_TO_QUEUES, "<UnderlyingTopic>", "xml"))
    count, kills = 300, 3
    done: list[int] = []
    with (
        programs(GUIDE_TO_WORKERS, tmp_path, server.port()) as guide,
        Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client,
    ):
        for number in range(count):
            client.publish("orders", {"id": number, "side": "buy"})
        client.flush()
        results = client.bookmark_subscribe("orders-done", "epoch")
        for kill in range(kills + 1):
            worker = guide.start("message.transaction()")
            while len(done) < (count if kill == kills else 20 * (kill + 1)):
                message = results.get(WAIT_S)
                assert message is not None, worker.output
                done.append(message.json()["id"])
            worker.kill()
        assert results.get(0.5) is None
    assert sorted(done) == list(range(count))
