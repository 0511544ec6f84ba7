"""Messages per second through a queue that more than one server keeps.

The clock runs as in `queue-throughput`: to the last acknowledgement, of publishes and of consumers, that the servers
have confirmed. Consumers use the server that the load uses. This server without replication takes part, so that the
table shows what the second copy costs. A queue that is not empty at the end gives no result.
"""

from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.consuming import ACK_BATCH, PREFETCH
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps_pair import AmpsQueuePair
from perf.peers.amps_queue import AmpsQueue
from perf.peers.nats_cluster import NatsClusterQueue, NatsClusterQueueSynced
from perf.peers.queueing import QueuePeer
from perf.peers.redis_pair import RedisPair, RedisPairEverySecond
from perf.scenarios.base import Scenario
from perf.scenarios.queue_throughput import measure_consumers, rate_of
from perf.scenarios.replicate_persist import COLUMNS, rows

CONSUMERS = 4


class ReplicateQueue(Scenario[QueuePeer]):
    name = "replicate-queue"
    question = "Messages per second from publishers to acknowledgements of consumers, stored on more than one server"
    peers = (
        AmpsQueuePair(),
        AmpsQueue(),
        NatsClusterQueue(),
        NatsClusterQueueSynced(),
        RedisPair(),
        RedisPairEverySecond(),
    )

    def measure(self, peer: QueuePeer, settings: Settings, base: Path) -> Measurement:
        measured = measure_consumers(peer, settings, base, CONSUMERS)
        rate = measured.values[rate_of(CONSUMERS)]
        return Measurement(
            {"messages_per_s": rate}, measured.messages, measured.elapsed_s, measured.cpu, measured.load_cpu_s
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        details = (
            f"{PAYLOAD_BYTES}-byte payloads, {settings.connections} publishers, {CONSUMERS} consumers, "
            f"prefetch {PREFETCH}, acknowledgements of {ACK_BATCH}, median of {settings.repetitions}"
        )
        return tables.lines(f"**{self.name}** ({details})", COLUMNS, rows(results, AmpsQueue.name))
