"""The guide's publisher and subscriber, while their server is killed and started again; its server chooser."""

from pathlib import Path

from tests.support.documents import GUIDE_TO_FAILOVER
from tests.support.ports import release_port, reserve_port
from tests.support.programs import WAIT_S, programs
from tests.support.server import StartServer, wait_until


def test_client_46_the_guides_clients_survive_their_server(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §21 46, 53: the blocks of docs/guide/failover.md as they are, but for the port."""
    server = start_server(log_topics=("^orders",))
    with programs(GUIDE_TO_FAILOVER, tmp_path, server.port()) as guide:
        subscriber = guide.start("orders-watcher")
        publisher = guide.start("orders-feed")

        def numbers() -> list[int]:
            # The clients also log each lost connection.
            return [int(line) for line in subscriber.lines() if line.isdigit()]

        for wanted in (50, 200):
            wait_until(lambda wanted=wanted: len(numbers()) >= wanted, WAIT_S, server.excerpt)  # type: ignore[misc]
            server.kill_all()
            server.start()
        publisher.finished()
        wait_until(lambda: len(numbers()) >= 1000, WAIT_S, lambda: subscriber.output)
        assert numbers() == list(range(1, 1001))
        assert subscriber.process.poll() is None


def test_the_guides_chooser_goes_on_to_the_server_that_answers(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §9.3, §21 59"""
    server = start_server()
    dead = reserve_port()
    try:
        with programs(GUIDE_TO_FAILOVER, tmp_path, server.port()) as guide:
            guide.replaced["localhost:9008"] = f"127.0.0.1:{dead}"
            guide.replaced["random.sample(uris, len(uris))"] = "reversed(uris)"
            said = guide.start("AnyServer")
            said.finished()
            assert said.lines("failed:") == [f"failed: tcp://127.0.0.1:{dead}/amps/json"]
            assert said.lines("connected:") == [f"connected: tcp://127.0.0.1:{server.port()}/amps/json"]
            del guide.replaced["random.sample(uris, len(uris))"]
            assert "connected:" in guide.run("AnyServer")
    finally:
        release_port(dead)
