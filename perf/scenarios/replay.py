"""Stored messages per second to one reader that begins with the first one.

The log is filled first, and lies in the page cache. By default this server drops most of it from there, so it is
measured with both settings. The reader counts messages by their marker byte.
"""

import time
from collections.abc import Sequence

from perf.load import MarkerCounter
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer, AmpsResident
from perf.peers.nats import NatsJetStream
from perf.peers.redis import RedisLargeReads, RedisReads
from perf.peers.server import ServerPeer
from perf.pump import RECEIVE_BYTES, PeerError, pump
from perf.scenarios.servers import ServerScenario, rate_table

DEFAULT_MESSAGES = 1_000_000
LOADING_LIMIT_S = 120.0
SETTLE_S = 1.0
TAIL_BYTES = 1024


class Replay(ServerScenario):
    name = "replay"
    question = "Stored messages per second to one reader, from the first one"
    peers = (AmpsResident(), AmpsPeer(), NatsJetStream(), RedisReads(), RedisLargeReads())

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        messages = settings.messages or DEFAULT_MESSAGES
        lanes = server.publish_lanes(1, messages)
        stored = pump(lanes, LOADING_LIMIT_S).acknowledged
        for lane in lanes:
            lane.sock.close()
        del lanes
        if stored != messages:
            raise PeerError(f"only {stored} of {messages} messages could be stored in {LOADING_LIMIT_S:g} s")
        time.sleep(SETTLE_S)
        reader = server.reader(messages)
        # The tail of the bytes received before stays in front of each chunk, so that `advance` sees whole ends.
        buffer = bytearray(RECEIVE_BYTES)
        view = memoryview(buffer)
        counter = MarkerCounter(buffer)
        received = 0
        received_bytes = 0
        tail = memoryview(b"")
        cpu_before, load_before = server.cpu(), time.process_time()
        started = time.perf_counter()
        reader.start()
        while received < messages:
            size = reader.sock.recv_into(view)
            if size == 0:
                raise PeerError(f"the server closed the connection after {received} of {messages} messages")
            received += counter.count(size)
            received_bytes += size
            kept = tail[-max(TAIL_BYTES - size, 0) :] if size < TAIL_BYTES else memoryview(b"")
            tail = memoryview(kept.tobytes() + view[max(0, size - TAIL_BYTES) : size].tobytes())
            reader.advance(received, tail)
        elapsed_s = time.perf_counter() - started
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        reader.sock.close()
        if received != messages:
            raise PeerError(f"{received} messages received instead of {messages}")
        return Measurement(
            {
                "messages_per_s": round(messages / elapsed_s),
                "wire_bytes_per_message": round(received_bytes / messages, 1),
            },
            messages,
            elapsed_s,
            server_cpu,
            load_cpu_s,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        return rate_table(self.name, [f"median of {settings.repetitions}"], results)
