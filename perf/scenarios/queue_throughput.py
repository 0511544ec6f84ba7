"""Messages per second through a queue while 1, 2, 4 and 8 consumers take and acknowledge them.

The clock runs from the first byte sent to the last acknowledgement, of publishes and of messages, that the server has
confirmed. Publishers are limited only by acknowledgements; messages wait in the queue if consumers are slower.
Each number of consumers gets a server of its own, so that memory of the run before has no effect.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.consuming import ACK_BATCH, PREFETCH
from perf.load import PAYLOAD_BYTES
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.queueing import QueuePeer
from perf.scenarios.base import Scenario
from perf.scenarios.queues import QUEUE_PEERS, pass_through, warm_up
from perf.scenarios.servers import fresh_server

CONSUMERS = (1, 2, 4, 8)
DEFAULT_LENGTH_S = 4.0


class QueueThroughput(Scenario[QueuePeer]):
    name = "queue-throughput"
    question = "Messages per second from publishers to acknowledgements of consumers"
    peers = QUEUE_PEERS

    def measure(self, peer: QueuePeer, settings: Settings, base: Path) -> Measurement:
        runs = [measure_consumers(peer, settings, base, count) for count in CONSUMERS]
        values = {name: value for run in runs for name, value in run.values.items()}
        values["messages_per_s"] = max(values.values())
        return Measurement(
            values,
            sum(run.messages for run in runs),
            sum(run.elapsed_s for run in runs),
            sum_of([run.cpu for run in runs]),
            sum(run.load_cpu_s for run in runs),
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        details = (
            f"{PAYLOAD_BYTES}-byte payloads, {settings.connections} publishers, "
            f"prefetch {PREFETCH}, acknowledgements of {ACK_BATCH}, median of {settings.repetitions}"
        )
        return tables.lines(
            f"**{self.name}** ({details}; messages/s)",
            [
                "peer",
                *(f"{count} consumer{'s' if count > 1 else ''}" for count in CONSUMERS),
                "best: ratio",
                "server CPU µs/message",
            ],
            [
                [
                    result.peer.title,
                    *(f"{result.median(rate_of(count)):,.0f}" for count in CONSUMERS),
                    tables.ratio(results, result, "messages_per_s", True),
                    f"{result.cpu_per_message_us:.2f}",
                ]
                for result in results
            ],
        )


def measure_consumers(peer: QueuePeer, settings: Settings, base: Path, count: int) -> Measurement:
    """One run with `count` consumers."""
    with fresh_server(peer, base) as server:
        messages = settings.messages or int(server.pace * (settings.seconds or DEFAULT_LENGTH_S))
        warm_up(server)
        cpu_before, load_before = server.cpu(), time.process_time()
        done = pass_through(server, settings.connections, count, messages)
        return Measurement(
            {rate_of(count): round(done.messages / done.elapsed_s)},
            done.messages,
            done.elapsed_s,
            server.cpu().since(cpu_before),
            time.process_time() - load_before,
        )


def sum_of(used: Sequence[CpuTime]) -> CpuTime:
    """The sum of several runs, by process."""
    names = {name for cpu in used for name in cpu.by_process}
    return CpuTime({name: sum(cpu.by_process.get(name, 0.0) for cpu in used) for name in sorted(names)})


def rate_of(consumers: int) -> str:
    return f"messages_per_s_{consumers}"
