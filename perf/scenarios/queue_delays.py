"""A queue of a million scheduled messages: their publishing, their memory, and how late they are delivered.

All messages are published with a time (`not_before`), evenly spread over a period that begins when they are all stored.
Then a consumer receives each at its time and acknowledges as in the other scenarios, while the others still wait.
Publisher and consumer are connections of one process, and the server runs on the same machine, so one clock gives the
times and measures the lateness: from `not_before`, a whole millisecond, to the moment at which the consumer has read
the message.
"""

import re
import time
from collections.abc import Sequence

import numpy as np

from perf import tables
from perf.consuming import Consumer
from perf.load import FIRST_NUMBER, PAYLOAD_BYTES, Load, build
from perf.measurement import Measurement, PeerResult, Settings
from perf.memory import held_bytes
from perf.peers.amps import AckCounter
from perf.peers.amps_queue import AmpsQueue
from perf.peers.server import ServerPeer
from perf.pump import RECEIVE_BYTES, STALL_S, Lane, PeerError, pump
from perf.scenarios.queues import hang_up, warm_up
from perf.scenarios.servers import ServerScenario

DEFAULT_MESSAGES = 1_000_000
DEFAULT_RATE = 10_000
FILLED_PER_S = 50_000
"""Lower bound of the rate of publishing: the first message is due when all are stored."""
SETTLING_S = 15.0
DIGITS = 13
NOT_BEFORE = re.compile(rb'"not_before":(\d{13})\}')


class QueueDelays(ServerScenario):
    name = "queue-delays"
    question = "Messages per second of publishing scheduled messages, their memory, and the lateness of their delivery"
    peers = (AmpsQueue(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, AmpsQueue)
        messages, rate = settings.messages or DEFAULT_MESSAGES, settings.rate or DEFAULT_RATE
        warm_up(server)
        server.settle()
        memory_before = held_bytes(process.pid for process in server.processes())
        load = scheduled(messages)
        first_ms = int((time.time() + messages / FILLED_PER_S + SETTLING_S) * 1000)
        write_times(load, first_ms, rate)
        lane = Lane(server.open(), load, AckCounter(), server.fill_window)
        cpu_before, load_before = server.cpu(), time.process_time()
        filled = pump([lane], 3600)
        lane.sock.close()
        del load, lane  # hundreds of megabytes
        server.settle()
        memory = held_bytes(process.pid for process in server.processes()) - memory_before
        if time.time() * 1000 > first_ms:
            raise PeerError("the messages were not stored when the first one was due")
        time.sleep(max(0.0, first_ms / 1000 - 1 - time.time()))
        (consumer,) = server.consumers(1, messages)
        lateness_ms = receive(consumer, messages)
        elapsed_s = filled.elapsed_s + messages / rate
        hang_up(server, [], [consumer])
        p50, p99, p999 = np.percentile(lateness_ms, [50, 99, 99.9])
        values = {
            "published_per_s": round(messages / filled.elapsed_s),
            "memory_bytes_per_message": round(memory / messages, 1),
            "p50_ms": round(float(p50), 2),
            "p99_ms": round(float(p99), 2),
            "p999_ms": round(float(p999), 2),
            "max_ms": round(float(lateness_ms.max()), 2),
        }
        return Measurement(
            values, messages, elapsed_s, server.cpu().since(cpu_before), time.process_time() - load_before
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        messages, rate = settings.messages or DEFAULT_MESSAGES, settings.rate or DEFAULT_RATE
        details = (
            f"{messages:,} messages of {PAYLOAD_BYTES} bytes, {rate:,} due per second, median of {settings.repetitions}"
        )
        titles = {
            "published_per_s": "published messages/s",
            "memory_bytes_per_message": "bytes of memory/message",
            "p50_ms": "lateness p50, ms",
            "p99_ms": "lateness p99, ms",
            "p999_ms": "lateness p99.9, ms",
            "max_ms": "lateness, largest, ms",
        }
        rows = [[title, f"{results[0].median(value):,.1f}"] for value, title in titles.items()]
        return tables.lines(f"**{self.name}** ({details})", ["", "figure"], rows)


def scheduled(messages: int) -> Load:
    """Publishes of messages with times, which are still to be written."""
    header = b'{"c":"p","t":"bench","s":%d,"a":"persisted","not_before":%013d}' % (FIRST_NUMBER, 0)
    prefix = (len(header) + PAYLOAD_BYTES).to_bytes(4, "big") + header
    return build(prefix, b"", messages, prefix.index(b'"s":') + len(b'"s":'))


def write_times(load: Load, first_ms: int, rate: int) -> None:
    """Write the times of all messages of a load: `rate` per second, from `first_ms` on."""
    rows = np.frombuffer(load.data, dtype=np.uint8).reshape(load.count, load.message_bytes)
    key = b'"not_before":'
    column = bytes(rows[0]).index(key) + len(key)
    times = first_ms + np.arange(load.count, dtype=np.int64) * 1000 // rate
    for digit in range(DIGITS):
        rows[:, column + digit] = times // 10 ** (DIGITS - 1 - digit) % 10 + ord("0")


def receive(consumer: Consumer, messages: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Receive and acknowledge all messages; return how late they were, in milliseconds. The few whose time is split
    between two reads are left out.
    """
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    lateness_ms: list[float] = []
    arrived = 0
    consumer.sock.setblocking(True)
    consumer.sock.settimeout(STALL_S)
    consumer.start()
    consumer.sock.sendall(consumer.outgoing)
    consumer.outgoing.clear()
    while not consumer.confirmed:
        size = consumer.sock.recv_into(buffer)
        now_ms = time.time_ns() / 1_000_000
        if size == 0:
            raise PeerError("the server closed the consumer's connection")
        lateness_ms += [now_ms - int(due_ms) for due_ms in NOT_BEFORE.findall(buffer[:size])]
        arrived += consumer.take(buffer[:size])
        if arrived == messages and not consumer.finishing:
            consumer.finish()
        if consumer.outgoing:
            consumer.sock.sendall(consumer.outgoing)
            consumer.outgoing.clear()
    if min(lateness_ms) < 0:
        raise PeerError(f"a message came {-min(lateness_ms):.1f} ms before its time")
    return np.array(lateness_ms)
