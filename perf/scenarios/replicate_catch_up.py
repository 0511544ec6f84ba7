"""Messages per second of a copy that was away, until it has what was published meanwhile.

The copy of a group is stopped in order. The leader gets messages, confirmed as in `publish-persist`. Then publishing
goes on at a moderate rate, and the copy is started. The clock runs from there until the copy has everything that was
published while it was away, and until it has it on its disk. Afterwards all copies are counted; if one lacks a message
that was confirmed, there is no result.
"""

import os
import time
from collections.abc import Sequence

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.pacing import PacedPublisher
from perf.peers.amps_catch_up import AmpsCatchUp
from perf.peers.catch_up import PAYLOAD_BYTES, CatchUpGroup
from perf.peers.redis_catch_up import RedisBacklog, RedisDiskless, RedisFromDisk
from perf.peers.server import ServerPeer
from perf.pump import PeerError, pump
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 10_000_000
DEFAULT_RATE = 20_000
WARM_UP_MESSAGES = 20_000
MESSAGES_PER_LOAD = 1_000_000
LOADING_LIMIT_S = 120.0


class ReplicateCatchUp(ServerScenario):
    name = "replicate-catch-up"
    question = "Messages per second of a copy that was away, until it has what was published meanwhile"
    peers = (AmpsCatchUp(), RedisDiskless(), RedisFromDisk(), RedisBacklog())

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, CatchUpGroup)
        messages = settings.messages or DEFAULT_MESSAGES
        published = publish(server, settings.connections, WARM_UP_MESSAGES)
        server.stored_copies(published)
        server.stop_copy()
        missed = publish(server, settings.connections, messages)
        server.mark()
        os.sync()
        live = PacedPublisher(lambda count: server.publish_lanes(1, count)[0], settings.rate or DEFAULT_RATE)
        cpu_before, load_before = server.cpu(), time.process_time()
        began_s = time.perf_counter()
        live.start()
        try:
            server.start_copy()
            server.await_everything()
            everything_s = time.perf_counter() - began_s
            server.await_stored()
            stored_s = time.perf_counter() - began_s
        finally:
            live_messages, live_rate = live.stop()
        cpu = server.cpu().since(cpu_before)
        load_cpu_s = time.process_time() - load_before
        server.check_way()
        expected = published + missed + live_messages
        if (found := server.stored_copies(expected)) < expected:
            raise PeerError(f"{server.name}: a copy has {found} of {expected} confirmed messages")
        values = {
            "messages_per_s": round(missed / stored_s),
            "there_per_s": round(missed / everything_s),
            "stored_s": round(stored_s, 3),
            "there_s": round(everything_s, 3),
            "live_per_s": round(live_rate),
        }
        return Measurement(values, missed, stored_s, cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        most = max(run.messages for result in results for run in result.runs)
        return tables.lines(
            f"**{self.name}** ({most:,} messages with payloads of {PAYLOAD_BYTES} bytes, "
            f"{settings.rate or DEFAULT_RATE:,} messages/s meanwhile, median of {settings.repetitions})",
            (
                "peer",
                "s until all is there",
                "s until all is stored",
                "messages/s there",
                "ratio",
                "messages/s stored",
                "ratio",
                "server CPU µs/message",
            ),
            [
                [
                    result.peer.title,
                    f"{result.median('there_s'):.1f}",
                    f"{result.median('stored_s'):.1f}",
                    f"{result.median('there_per_s'):,.0f}",
                    tables.ratio(results, result, "there_per_s", True),
                    f"{result.median('messages_per_s'):,.0f}",
                    tables.ratio(results, result, "messages_per_s", True),
                    f"{result.cpu_per_message_us:.2f}",
                ]
                for result in results
            ],
        )


def publish(server: CatchUpGroup, connections: int, messages: int) -> int:
    """Publish about `messages` messages; return how many the leader has confirmed. Raises PeerError."""
    confirmed = 0
    for first in range(0, messages, MESSAGES_PER_LOAD):
        lanes = server.publish_lanes(connections, min(MESSAGES_PER_LOAD, messages - first))
        wanted = sum(lane.load.count for lane in lanes)
        if (pumped := pump(lanes, LOADING_LIMIT_S).acknowledged) != wanted:
            raise PeerError(f"{wanted} messages could not be stored in {LOADING_LIMIT_S:g} s")
        for lane in lanes:
            lane.sock.close()
        confirmed += pumped
    return confirmed
