"""Publishes per second of a client that writes each message by itself, recorded and not.

The server receives many small writes: only its own batching makes few large pieces of them. The clock runs from the
first write until the server confirms the last message.
"""

import time
from collections.abc import Sequence

from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer, AmpsUnrecorded
from perf.peers.nats import NatsCore
from perf.peers.server import ServerPeer, SingleWriter
from perf.scenarios.servers import ServerScenario, rate_table

DEFAULT_MESSAGES = 1_000_000
WARM_UP_MESSAGES = 20_000


def write_singly(writer: SingleWriter) -> None:
    """Write each message with a call of its own, and wait for the confirmation of the last."""
    load = writer.load
    send, data, size = writer.sock.sendall, load.data, load.message_bytes
    for at in range(0, load.count * size, size):
        send(data[at : at + size])
    writer.confirm()


class PublishSingly(ServerScenario):
    name = "publish-singly"
    question = "Publishes per second of a client that writes each message by itself"
    peers: Sequence[ServerPeer] = (AmpsPeer(), AmpsUnrecorded(), NatsCore())

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        count = settings.messages or DEFAULT_MESSAGES
        writer = server.single_writer(WARM_UP_MESSAGES)
        write_singly(writer)
        writer.sock.close()
        writer = server.single_writer(count)
        cpu_before, load_before, started = server.cpu(), time.process_time(), time.perf_counter()
        write_singly(writer)
        elapsed_s = time.perf_counter() - started
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        writer.sock.close()
        values = {"messages_per_s": round(count / elapsed_s)}
        return Measurement(values, count, elapsed_s, server_cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        return rate_table(self.name, ["1 connection", f"median of {settings.repetitions}"], results)
