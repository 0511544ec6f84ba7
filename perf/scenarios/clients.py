"""Messages per second through a client library, as the application sees it.

The client works in a process of its own on one processor; the server and the load generator use the others. So
messages per second of the client's processor time is what one core can do, and is free of the server's pace.
"""

from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.clients.amps_asyncio import AmpsAsyncClient
from perf.clients.amps_blocking import AmpsClient, AmpsFileClient, AmpsMemoryClient
from perf.clients.base import BODY_BYTES, Case, ClientPeer
from perf.clients.nats import NatsClient
from perf.clients.process import ClientProcess, Work
from perf.clients.processors import confined_to_servers
from perf.clients.rabbitmq import PikaClient
from perf.clients.redis import RedisAsyncClient, RedisClient
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.queueing import QueuePeer
from perf.peers.server import ServerPeer
from perf.pump import PeerError, pump
from perf.scenarios.base import Scenario
from perf.scenarios.servers import fresh_server

DEFAULT_SECONDS = 2.0
LOADING_LIMIT_S = 120.0
PEERS: tuple[ClientPeer, ...] = (
    AmpsClient(),
    AmpsMemoryClient(),
    AmpsFileClient(),
    AmpsAsyncClient(),
    RedisClient(),
    RedisAsyncClient(),
    NatsClient(),
    PikaClient(),
)
QUESTIONS = {
    Case.PUBLISH: "Messages per second that an application publishes, until the server has confirmed all",
    Case.LIVE: "Live messages per second into a handler that reads body and topic",
    Case.REPLAY: "Stored messages per second into a handler that reads body and topic",
    Case.QUEUE: "Queue messages per second that a handler reads and acknowledges",
}


class Clients(Scenario[ClientPeer]):
    """One case of all client libraries that take part in it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.name = f"client-{case.value}"  # type: ignore[misc]
        self.question = QUESTIONS[case]  # type: ignore[misc]
        self.peers = tuple(peer for peer in PEERS if case in peer.servers)
        self.profile: Path | None = None

    def measure(self, peer: ClientPeer, settings: Settings, base: Path) -> Measurement:
        count = settings.messages or int(peer.pace * (settings.seconds or DEFAULT_SECONDS))
        with confined_to_servers(), fresh_server(peer.servers[self.case](), base) as server:
            if self.case in (Case.REPLAY, Case.QUEUE):
                load(server, count)
            before = server.cpu()
            client = ClientProcess(Work(peer, self.case, server.port, count, self.profile))
            try:
                run = client.run(
                    (lambda: load(server, count)) if self.case is Case.LIVE else (lambda: None),
                    lambda: check_queue(server) if self.case is Case.QUEUE else None,
                )
            finally:
                client.end()
            used = server.cpu().since(before)
        return Measurement(
            {
                "messages_per_s": round(count / run.elapsed_s),
                "messages_per_processor_s": round(count / run.processor_s),
            },
            count,
            run.elapsed_s,
            CpuTime({"client": run.processor_s}),
            used.total_s,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        return tables.lines(
            f"**{self.name}** ({BODY_BYTES}-byte bodies, median of {settings.repetitions})",
            ["client", "messages per second of its processor", "ratio", "messages/s", "slowest … fastest run", "calls"],
            [
                [
                    result.peer.title,
                    f"{result.median('messages_per_processor_s'):,.0f}",
                    tables.ratio(results, result, "messages_per_processor_s", True),
                    f"{result.median('messages_per_s'):,.0f}",
                    tables.extremes(result, "messages_per_processor_s"),
                    result.peer.ways[self.case] if isinstance(result.peer, ClientPeer) else "",
                ]
                for result in results
            ],
        )


def load(server: ServerPeer, count: int) -> None:
    """Publish the messages to the server from the load generator. Raises PeerError unless all are stored."""
    lanes = server.publish_lanes(1, count)
    stored = pump(lanes, LOADING_LIMIT_S).acknowledged
    for lane in lanes:
        lane.sock.close()
    if stored != count:
        raise PeerError(f"only {stored} of {count} messages could be stored in {LOADING_LIMIT_S:g} s")


def check_queue(server: ServerPeer) -> None:
    """Raises PeerError if messages are left in the queue."""
    if isinstance(server, QueuePeer) and server.left():
        raise PeerError(f"{server.left()} messages are left in the queue")
