"""Messages per second through a queue while 1, 2, 4 and 8 consumers take and acknowledge them.

The clock runs from the first byte sent to the last acknowledgement, of publishes and of messages, that the server has
confirmed. Publishers go as fast as acknowledgements let them; whatever is ahead of the consumers waits in the queue.
"""

import time
from collections.abc import Sequence

from perf import tables
from perf.consuming import ACK_BATCH, PREFETCH
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.queueing import QueuePeer
from perf.peers.server import ServerPeer
from perf.scenarios.queues import QueueScenario, pass_through, warm_up

CONSUMERS = (1, 2, 4, 8)
DEFAULT_LENGTH_S = 4.0


class QueueThroughput(QueueScenario):
    name = "queue-throughput"
    question = "Messages per second from publishers to acknowledgements of consumers"

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, QueuePeer)
        messages = settings.messages or int(server.pace * (settings.seconds or DEFAULT_LENGTH_S))
        warm_up(server)
        values: dict[str, float] = {}
        total = 0
        elapsed_s = 0.0
        cpu_before, load_before = server.cpu(), time.process_time()
        for count in CONSUMERS:
            done = pass_through(server, settings.connections, count, messages)
            values[rate_of(count)] = round(done.messages / done.elapsed_s)
            total += done.messages
            elapsed_s += done.elapsed_s
        load_cpu_s = time.process_time() - load_before
        values["messages_per_s"] = max(values.values())
        return Measurement(values, total, elapsed_s, server.cpu().since(cpu_before), load_cpu_s)

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
                "best: ours is",
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


def rate_of(consumers: int) -> str:
    return f"messages_per_s_{consumers}"
