"""Publishes per second until acknowledged as stored.

The meaning of "stored" depends on the peer: this server acknowledges after fdatasync, the others by default
before it. The clock runs from the first byte sent to the last acknowledgement received.
"""

import time
from collections.abc import Sequence

from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer
from perf.peers.nats import NatsJetStream, NatsJetStreamSynced
from perf.peers.redis import RedisAlways, RedisEverySecond
from perf.peers.server import ServerPeer
from perf.pump import pump
from perf.scenarios.servers import ServerScenario, rate_table

DEFAULT_MESSAGES = 4_000_000  # more than one journal file of this server holds
DEFAULT_LIMIT_S = 10.0
WARM_UP_MESSAGES = 20_000
WARM_UP_S = 2.0


class PublishPersist(ServerScenario):
    name = "publish-persist"
    question = "Publishes per second until acknowledged as stored"
    peers = (AmpsPeer(), NatsJetStream(), NatsJetStreamSynced(), RedisEverySecond(), RedisAlways())

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        pump(server.publish_lanes(1, WARM_UP_MESSAGES), WARM_UP_S)
        lanes = server.publish_lanes(settings.connections, settings.messages or DEFAULT_MESSAGES)
        cpu_before, load_before = server.cpu(), time.process_time()
        pumped = pump(lanes, settings.seconds or DEFAULT_LIMIT_S)
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        for lane in lanes:
            lane.sock.close()
        return Measurement(
            {"messages_per_s": round(pumped.acknowledged / pumped.elapsed_s)},
            pumped.acknowledged,
            pumped.elapsed_s,
            server_cpu,
            load_cpu_s,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        details = [
            f"at most {limit_s:g} s",
            f"{settings.connections} connections",
            f"median of {settings.repetitions}",
        ]
        return rate_table(self.name, details, results)
