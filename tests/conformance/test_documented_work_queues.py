"""The guides to work queues and dead letters: their programs, as they are but for the port and the lease."""

import shlex
from pathlib import Path

from amps.client import Client, Failure
from tests.support.documents import GUIDE_TO_DEAD_LETTERS, GUIDE_TO_WORK_QUEUES, GUIDE_TO_WORKERS, blocks
from tests.support.programs import WAIT_S, Programs, programs
from tests.support.queues import queue_xml
from tests.support.server import StartServer
from tests.unit.cli.running import COMMAND


def lines_of_commands(guide: Programs, containing: str) -> list[str]:
    """The output of each command of a block."""
    commands = guide.text(containing, "sh").replace(".venv/bin/amps", shlex.join(COMMAND))
    return guide.start_command(["bash", "-ec", commands]).finished().splitlines()


def test_the_guide_to_work_queues(start_server: StartServer, tmp_path: Path) -> None:
    """queues.md §14.1, D-31: jobs are listed, and a lease that is extended is kept."""
    with programs(GUIDE_TO_WORK_QUEUES, tmp_path, 0) as guide:
        configuration = guide.text("<Priority>", "xml").replace("5s", "2s")
        server = start_server(log_topics=("^jobs$",), instance_xml=configuration)
        guide.replaced |= {"localhost:9007": f"127.0.0.1:{server.port()}", "=5s": "=2s", "sleep(1)": "sleep(0.8)"}
        assert guide.run("job-source") == "waiting: 3\n"
        listed = lines_of_commands(guide, "amps sow")
        assert sorted('"id":1' in line for line in listed) == [False, False, False, True]
        assert sum('"id":2' in line for line in listed) == 2
        guide.replaced["concurrency=2, max_backlog=2"] = "concurrency=3, max_backlog=3"
        worker = guide.start("lease_extension")
        worker.until("job 1: step 0", "job 2: step 0", "job 3: step 0")
        with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
            other = client.subscribe("todo", max_backlog=10)  # would get a job whose lease ended
            worker.until("job 1: step 2", "job 2: step 2", "job 3: step 2")
            worker.end()
            assert other.get(0.2) is None
            assert client.sow_count("todo") == 0


def test_the_guides_queue_prefers_jobs_of_high_priority(start_server: StartServer, tmp_path: Path) -> None:
    """queues.md §9.3"""
    with programs(GUIDE_TO_WORK_QUEUES, tmp_path, 0) as guide:
        server = start_server(log_topics=("^jobs$",), instance_xml=guide.text("<Priority>", "xml"))
        guide.replaced["localhost:9007"] = f"127.0.0.1:{server.port()}"
        guide.run("job-source")
        with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
            jobs = client.subscribe("todo", max_backlog=10)
            assert [jobs.get(WAIT_S).json()["id"] for _ in range(3)] == [2, 1, 3]  # type: ignore[union-attr]


def test_the_guide_to_dead_letters(start_server: StartServer, tmp_path: Path) -> None:
    """queues.md §5: dead letters are listed, repaired, left for a person, and deleted."""
    with programs(GUIDE_TO_DEAD_LETTERS, tmp_path, 0) as guide:
        rejected = guide.text("<LocalQueue>", "xml")
        work = queue_xml("work", "orders", LeasePeriod="30s")
        server = start_server(
            log_topics=("^orders",), instance_xml=rejected.replace("<SOW>", f"<SOW>{work}")
        )
        guide.replaced["localhost:9007"] = f"127.0.0.1:{server.port()}"
        with (
            programs(GUIDE_TO_WORKERS, tmp_path, server.port()) as workers,
            Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client,
        ):
            client.publish("orders", {"id": 1})
            client.publish("orders", {"id": 2, "side": "buy", "more": "x"})
            worker = workers.start("raise Rejected")
            worker.until("buy 2", "an order needs a side")
            other = Failure("work", "1|1|", 3, "OSError: the disk is full", None)
            client.publish("orders-rejected", {"id": 50}, correlation_id=other.encoded())
            client.flush()
            assert guide.run("sow_count") == (
                "dead letters: 2\n"
                '1 Rejected: an order needs a side {"id":1}\n'
                '3 OSError: the disk is full {"id":50}\n'
            )
            assert guide.run("order-repair") == "sent again: 1\nfor a person: 50\n"
            worker.until("buy 1")
            worker.end()
            client.publish("orders-rejected", {"id": 51})
            client.flush()
            assert lines_of_commands(guide, "-move") == ['{"id":50}']
            assert [message.json() for message in client.sow("work")] == [{"id": 50}]
            assert lines_of_commands(guide, "sow_delete") == ["total records deleted: 1"]
            assert client.sow_count("orders-rejected") == 0


def test_every_program_of_the_guides_is_run() -> None:
    counted = {
        (guide, language): len(blocks(guide, language))
        for guide in (GUIDE_TO_WORK_QUEUES, GUIDE_TO_DEAD_LETTERS)
        for language in ("python", "sh", "xml")
    }
    assert list(counted.values()) == [2, 1, 1, 2, 2, 1]
