"""Publishes per second until acknowledged as stored.

What "stored" means is each peer's own: this server acknowledges after fdatasync, the others in their defaults
before it. The clock runs from the first byte sent to the last acknowledgement received.
"""

import time

from perf.peers.base import Peer
from perf.pump import pump
from perf.scenarios.common import Measurement, Settings

DEFAULT_MESSAGES = 4_000_000  # more than one journal file of this server holds
WARM_UP_MESSAGES = 20_000
WARM_UP_S = 2.0


def measure(peer: Peer, settings: Settings) -> Measurement:
    pump(peer.publish_lanes(1, WARM_UP_MESSAGES), WARM_UP_S)
    lanes = peer.publish_lanes(settings.connections, settings.messages or DEFAULT_MESSAGES)
    cpu_before, load_before = peer.cpu(), time.process_time()
    pumped = pump(lanes, settings.seconds)
    load_cpu_s = time.process_time() - load_before
    server_cpu = peer.cpu().since(cpu_before)
    for lane in lanes:
        lane.sock.close()
    return Measurement(
        {"messages_per_s": round(pumped.acknowledged / pumped.elapsed_s)},
        pumped.acknowledged,
        pumped.elapsed_s,
        server_cpu,
        load_cpu_s,
    )
