"""A queue that is filled without consumers and drained by four: messages per second of both, and memory per message.

Memory is the memory of the server's processes at that depth, less their memory before, warmed up (`perf.memory`). A
peer that does not reach the depth in the time of a run is measured at the depth it has reached.
"""

import time
from collections.abc import Sequence

from perf import tables
from perf.consuming import ACK_BATCH, exchange
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.memory import held_bytes
from perf.peers.queueing import QueuePeer
from perf.peers.server import ServerPeer
from perf.pump import pump
from perf.scenarios.queues import QueueScenario, hang_up, warm_up

DEFAULT_MESSAGES = 10_000_000
DEFAULT_LIMIT_S = 30.0
CONSUMERS = 4
FILLING_IS_FASTER = 2
"""Upper bound of the speed of filling, relative to publishing and consuming at once; sets the load to build."""


class QueueDepth(QueueScenario):
    name = "queue-depth"
    question = "Messages per second of filling a deep queue and of draining it, and its memory per message"
    consumer_count = CONSUMERS
    messages = DEFAULT_MESSAGES
    acknowledging = f"of {ACK_BATCH}"

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, QueuePeer)
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        built = min(settings.messages or self.messages, int(server.pace * limit_s * FILLING_IS_FASTER))
        warm_up(server)
        server.settle()
        memory_before = memory_bytes(server)
        lanes = server.publish_lanes(settings.connections, built)
        for lane in lanes:
            lane.window = (server.fill_window or server.window) // len(lanes)
        cpu_before, load_before = server.cpu(), time.process_time()
        filled = pump(lanes, limit_s)
        for lane in lanes:
            lane.sock.close()
        del lanes  # gigabytes
        server.settle()
        depth = filled.acknowledged
        memory = memory_bytes(server) - memory_before
        consumers = server.consumers(self.consumer_count, depth)
        drained = exchange([], consumers, depth)
        hang_up(server, [], consumers)
        values = {
            "depth": float(depth),
            "filled_per_s": round(depth / filled.elapsed_s),
            "drained_per_s": round(depth / drained.elapsed_s),
            "memory_bytes_per_message": round(memory / depth, 1),
        }
        return Measurement(
            values,
            depth,
            filled.elapsed_s + drained.elapsed_s,
            server.cpu().since(cpu_before),
            time.process_time() - load_before,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        details = (
            f"{PAYLOAD_BYTES}-byte payloads, filled for at most {settings.seconds or DEFAULT_LIMIT_S:g} s, "
            f"drained by {self.consumer_count} consumers with acknowledgements {self.acknowledging}, "
            f"median of {settings.repetitions}"
        )
        return tables.lines(
            f"**{self.name}** ({details})",
            [
                "peer",
                "messages",
                "filled messages/s",
                "drained messages/s",
                "bytes of memory/message",
                "filling: ratio",
                "draining: ratio",
                "memory: ratio",
            ],
            [
                [
                    result.peer.title,
                    *(f"{result.median(value):,.0f}" for value in ("depth", "filled_per_s", "drained_per_s")),
                    f"{result.median('memory_bytes_per_message'):,.0f}",
                    *(
                        tables.ratio(results, result, value, True)
                        for value in ("filled_per_s", "drained_per_s")
                    ),
                    tables.ratio(results, result, "memory_bytes_per_message", False),
                ]
                for result in results
            ],
        )


def memory_bytes(server: QueuePeer) -> int:
    """Memory of all processes of a server."""
    return held_bytes(process.pid for process in server.processes())
