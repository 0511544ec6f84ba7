"""Messages per second of a client library's own processor time, and per second of wall time, beside other libraries.

A fresh server and a fresh client process take part in each repetition. The client is alone on one processor; the
server and the load generator have the others. The load generator fills the topic or queue before the clock starts, and
sends live messages as fast as the server takes them. Everything that a client receives is checked afterwards: the
number of messages, their order and their content.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perf import tables
from perf.clients.amps_asyncio import AmpsAsyncClient
from perf.clients.amps_blocking import AmpsClient, AmpsFileClient, AmpsMemoryClient
from perf.clients.base import BODY_BYTES, Case, ClientPeer
from perf.clients.nats import NatsClient
from perf.clients.pika import PikaAsyncClient, PikaClient
from perf.clients.process import ClientProcess, Work
from perf.clients.processors import confined_to_servers
from perf.clients.redis import RedisAsyncClient, RedisClient
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.queueing import QueuePeer
from perf.peers.server import ServerPeer
from perf.pump import Lane, PeerError, pump
from perf.scenarios.base import Scenario
from perf.scenarios.servers import fresh_server

CLIENTS: tuple[ClientPeer, ...] = (
    AmpsClient(),
    AmpsMemoryClient(),
    AmpsFileClient(),
    AmpsAsyncClient(),
    RedisClient(),
    RedisAsyncClient(),
    NatsClient(),
    PikaClient(),
    PikaAsyncClient(),
)
DEFAULT_LENGTH_S = 2.0
LOADING_LIMIT_S = 120.0


def load(lanes: Sequence[Lane]) -> None:
    """Publish everything. Raises PeerError if the server has not taken it in time."""
    pump(list(lanes), LOADING_LIMIT_S)
    for lane in lanes:
        lane.sock.close()
        if lane.acknowledged != lane.load.count:
            raise PeerError(f"only {lane.acknowledged} of {lane.load.count} messages were taken in time")


class ClientScenario(Scenario[ClientPeer]):
    """One case of all client libraries that have it."""

    case: Case

    @contextmanager
    def prepared(self, peers: Sequence[ClientPeer], settings: Settings, base: Path) -> Iterator[None]:
        with confined_to_servers():
            yield

    def measure(self, peer: ClientPeer, settings: Settings, base: Path) -> Measurement:
        with fresh_server(peer.servers[self.case](), base) as server:
            measured = self.measure_client(peer, server, settings)
            if isinstance(server, QueuePeer) and self.case is Case.QUEUE and (left := server.left()):
                raise PeerError(f"{peer.name}: {left} messages are left in the queue")
            return measured

    def measure_client(self, peer: ClientPeer, server: ServerPeer, settings: Settings) -> Measurement:
        count = settings.messages or int(peer.pace * (settings.seconds or DEFAULT_LENGTH_S))
        lanes = server.publish_lanes(1, count) if self.case is not Case.PUBLISH else []
        if self.case in (Case.REPLAY, Case.QUEUE):
            load(lanes)
            server.settle()
        folded = Path(f"{settings.profile}-{self.name}-{peer.name}.folded") if settings.profile else None
        client = ClientProcess(Work(peer, self.case, server.port, count, folded))
        used: list[CpuTime] = [server.cpu()]
        try:
            run = client.run(
                meanwhile=lambda: load(lanes) if self.case is Case.LIVE else None,
                after=lambda: used.append(server.cpu()),
            )
        finally:
            client.end()
        values = {
            "messages_per_cpu_s": round(count / run.processor_s),
            "messages_per_s": round(count / run.elapsed_s),
        }
        notes = [f"profile: {folded} and {folded.with_suffix('.txt').name}"] if folded else []
        return Measurement(values, count, run.elapsed_s, used[1].since(used[0]), run.processor_s, notes)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        asynchronous = [result for result in results if result.peer.name == AmpsAsyncClient.name]
        details = [f"{BODY_BYTES}-byte bodies", f"median of {settings.repetitions}"]
        return tables.lines(
            f"**{self.name}** ({', '.join(details)})",
            [
                "client",
                "way",
                "messages per processor second",
                "ratio",
                "ratio, asyncio",
                "messages/s",
                "ratio",
                "slowest … fastest run, per processor second",
            ],
            [
                [
                    result.peer.title,
                    result.peer.ways[self.case] if isinstance(result.peer, ClientPeer) else "",
                    f"{result.median('messages_per_cpu_s'):,.0f}",
                    tables.ratio(results, result, "messages_per_cpu_s", True),
                    tables.ratio([*asynchronous, result], result, "messages_per_cpu_s", True),
                    f"{result.median('messages_per_s'):,.0f}",
                    tables.ratio(results, result, "messages_per_s", True),
                    tables.extremes(result, "messages_per_cpu_s"),
                ]
                for result in results
            ],
        )


def taking_part(case: Case) -> tuple[ClientPeer, ...]:
    return tuple(peer for peer in CLIENTS if case in peer.servers)


class ClientPublish(ClientScenario):
    name = "client-publish"
    question = "Publishes per second of a client library, until all are confirmed as stored"
    case = Case.PUBLISH
    peers = taking_part(Case.PUBLISH)


class ClientLive(ClientScenario):
    name = "client-live"
    question = "Live messages per second of a client library into a handler that reads body and topic"
    case = Case.LIVE
    peers = taking_part(Case.LIVE)


class ClientReplay(ClientScenario):
    name = "client-replay"
    question = "Stored messages per second of a client library into a handler that reads body and topic"
    case = Case.REPLAY
    peers = taking_part(Case.REPLAY)


class ClientQueue(ClientScenario):
    name = "client-queue"
    question = "Queue messages per second of a client library that acknowledges them"
    case = Case.QUEUE
    peers = taking_part(Case.QUEUE)
