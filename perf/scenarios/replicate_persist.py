"""Publishes per second until acknowledged as stored on more than one server.

The load is that of `publish-persist`: payloads, publishers, and the best number of unconfirmed publishes for each peer.
This server without replication takes part, so that the table shows what the second copy costs. After each run all
copies are counted; if one lacks a message that was confirmed, there is no result.
"""

import time
from collections.abc import Sequence

from perf import tables
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer
from perf.peers.amps_pair import AmpsPair
from perf.peers.groups import ServerGroup
from perf.peers.nats_cluster import NatsCluster, NatsClusterSynced
from perf.peers.redis_pair import RedisPair, RedisPairEverySecond
from perf.peers.server import ServerPeer
from perf.pump import PeerError, pump
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 2_000_000
DEFAULT_LIMIT_S = 10.0
WARM_UP_MESSAGES = 20_000
WARM_UP_S = 2.0
COLUMNS = (
    "peer",
    "messages/s",
    "ratio",
    "of this server alone",
    "server CPU µs/message",
    "slowest … fastest run",
)


class ReplicatePersist(ServerScenario):
    name = "replicate-persist"
    question = "Publishes per second until acknowledged as stored on more than one server"
    peers = (
        AmpsPair(),
        AmpsPeer(),
        NatsCluster(),
        NatsClusterSynced(),
        RedisPair(),
        RedisPairEverySecond(),
    )

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        warm = pump(server.publish_lanes(1, WARM_UP_MESSAGES), WARM_UP_S).acknowledged
        lanes = server.publish_lanes(settings.connections, settings.messages or DEFAULT_MESSAGES)
        cpu_before, load_before = server.cpu(), time.process_time()
        pumped = pump(lanes, settings.seconds or DEFAULT_LIMIT_S)
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        for lane in lanes:
            lane.sock.close()
        del lanes
        messages = pumped.acknowledged * server.batch
        if isinstance(server, ServerGroup):
            expected = messages + warm * server.batch
            if (found := server.stored_copies(expected)) < expected:
                raise PeerError(f"{server.name}: a copy has {found} of {expected} confirmed messages")
        return Measurement(
            {"messages_per_s": round(messages / pumped.elapsed_s)},
            messages,
            pumped.elapsed_s,
            server_cpu,
            load_cpu_s,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        most = max(run.messages for result in results for run in result.runs)
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        return tables.lines(
            f"**{self.name}** ({PAYLOAD_BYTES}-byte payloads, {most:,} messages, at most {limit_s:g} s,"
            f" {settings.connections} connections, median of {settings.repetitions})",
            COLUMNS,
            rows(results, AmpsPeer.name),
        )


def rows(results: Sequence[PeerResult], alone: str) -> list[list[str]]:
    """A row per peer; `alone` is the name of this server without replication."""
    single = next((result for result in results if result.peer.name == alone), None)
    return [
        [
            result.peer.title,
            f"{result.median('messages_per_s'):,.0f}",
            tables.ratio(results, result, "messages_per_s", True),
            share(result, single),
            f"{result.cpu_per_message_us:.2f}",
            tables.extremes(result, "messages_per_s"),
        ]
        for result in results
    ]


def share(result: PeerResult, single: PeerResult | None) -> str:
    """The rate of this server's pair in relation to one instance that does not replicate; empty for others."""
    if single is None or result is single or not tables.is_own(result):
        return ""
    return f"{result.median('messages_per_s') / single.median('messages_per_s'):.0%}"
