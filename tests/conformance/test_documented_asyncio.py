"""The programs of the guides to asyncio and to the documented API, as they are, but for the port."""

import time
from pathlib import Path

from amps.client import EPOCH, Client
from tests.support.documents import GUIDE_TO_ASYNCIO, GUIDE_TO_PORTING
from tests.support.programs import WAIT_S, programs
from tests.support.queues import options, queue_xml
from tests.support.server import StartServer, wait_until


def test_the_guides_asyncio_client_publishes_and_replays(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §19.6"""
    server = start_server(log_topics=("^orders",))
    with programs(GUIDE_TO_ASYNCIO, tmp_path, server.port()) as guide:
        assert guide.run("async-feed") == "1\n2\n3\n"


def test_the_guides_asyncio_worker_drains_at_its_end(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §19.6, §21 40"""
    server = start_server(**options(queue_xml("work", "T", LeasePeriod="30s"), log_topics=("^T$", "^done$")))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    with programs(GUIDE_TO_ASYNCIO, tmp_path, server.port()) as guide, Client("feed", uri) as client:
        worker = guide.start("async-worker")
        for number in range(100):
            client.publish("T", {"id": number})
        client.flush()
        done = client.bookmark_subscribe("done", EPOCH)
        results = {done.get(WAIT_S).json()["id"] for _ in range(100)}  # type: ignore[union-attr]
        assert results == set(range(100))
        assert sorted(int(line) for line in worker.end().split()) == list(range(100))
        wait_until(lambda: client.sow("work").to_list() == [], WAIT_S, server.excerpt)


def test_the_guides_ported_program_runs(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §19.12"""
    server = start_server(log_topics=("^orders",))
    with programs(GUIDE_TO_PORTING, tmp_path, server.port()) as guide:
        assert guide.run('Client("ported")') == '{"id": 7}\n'


def test_the_guides_ported_program_delays_a_message(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §21, 76"""
    server = start_server(**options(queue_xml("work", "orders"), log_topics=("^orders",)))
    with programs(GUIDE_TO_PORTING, tmp_path, server.port()) as guide:
        body, _, not_before_ms = guide.run("set_delay").rpartition(" ")
    assert body == '{"id": 8}'
    assert int(not_before_ms) <= time.time() * 1000
    assert int(not_before_ms) > 1.7e12
