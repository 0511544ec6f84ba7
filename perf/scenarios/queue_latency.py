"""Time from publisher to consumer through a queue, at a rate that every peer reaches.

Publisher and consumer are two connections of one process, so one clock times both ends: the send time travels in the
payload. A timer of the kernel paces the sender; a tick that comes late is sent late and stamped late. The consumer
acknowledges as in the other scenarios, so the server is busy with that as well.
"""

import select
import time
from collections.abc import Sequence

import numpy as np

from perf import tables
from perf.consuming import Consumer
from perf.load import TIMESTAMP_DIGITS, TIMESTAMP_KEY
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.queueing import QueuePeer
from perf.peers.server import ServerPeer
from perf.pump import RECEIVE_BYTES, Lane, PeerError
from perf.scenarios.live_latency import BURST_LIMIT, DRAIN_S, Arrivals, PeriodicTimer
from perf.scenarios.queues import QueueScenario, hang_up

DEFAULT_RATE = 250
DEFAULT_LENGTH_S = 10.0
WARM_UP_S = 2.0


class QueueLatency(QueueScenario):
    name = "queue-latency"
    question = "Time from publisher to consumer through a queue, at a fixed rate"

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, QueuePeer)
        rate = settings.rate or DEFAULT_RATE
        warm_up = int(rate * WARM_UP_S)
        total = warm_up + int(rate * (settings.seconds or DEFAULT_LENGTH_S))
        (lane,) = server.publish_lanes(1, total)
        (consumer,) = server.consumers(1, total)
        cpu_before, load_before, started_s = server.cpu(), time.process_time(), time.perf_counter()
        arrivals = run(lane, consumer, rate)
        elapsed_s = time.perf_counter() - started_s
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        hang_up(server, [lane], [consumer])
        latencies_ns = np.array(arrivals.latencies_ns[warm_up:])
        p50, p99, p999 = np.percentile(latencies_ns, [50, 99, 99.9]) / 1000
        values = {
            "p50_us": round(float(p50), 1),
            "p99_us": round(float(p99), 1),
            "p999_us": round(float(p999), 1),
            "max_us": round(float(latencies_ns.max()) / 1000, 1),
            "messages_per_s": round(total / elapsed_s),
        }
        return Measurement(values, total, elapsed_s, server_cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        length_s = settings.seconds or DEFAULT_LENGTH_S
        rate = settings.rate or DEFAULT_RATE
        return tables.lines(
            f"**{self.name}** ({rate:,} messages/s for {length_s:g} s, median of {settings.repetitions})",
            ["peer", "p50 µs", "p99 µs", "p99.9 µs", "p50: ratio", "p99: ratio"],
            [
                [
                    result.peer.title,
                    *(f"{result.median(value):,.0f}" for value in ("p50_us", "p99_us", "p999_us")),
                    *(tables.ratio(results, result, value, False) for value in ("p50_us", "p99_us")),
                ]
                for result in results
            ],
        )


def run(lane: Lane, consumer: Consumer, rate: int) -> Arrivals:
    """Send the lane's load at `rate`, each message stamped as it leaves. Ends when both sides have acknowledged all."""
    timer = PeriodicTimer(10**9 // rate)
    poll = select.epoll()
    paced = Paced(lane, consumer, timer)
    for fd in (timer.fd, lane.sock.fileno(), consumer.sock.fileno()):
        poll.register(fd, select.EPOLLIN)
    deadline_s = time.monotonic() + lane.load.count / rate * 2 + DRAIN_S
    try:
        consumer.start()
        consumer.sock.sendall(consumer.outgoing)
        consumer.outgoing.clear()
        while not (lane.done and consumer.confirmed):
            for fd, _ in poll.poll(1.0):
                paced.on_ready(fd)
            if time.monotonic() > deadline_s:
                arrived = len(paced.arrivals.latencies_ns)
                raise PeerError(f"{arrived} of {lane.load.count} messages arrived in time")
    finally:
        poll.close()
        timer.close()
    return paced.arrivals


class Paced:
    """One publisher and one consumer with blocking sockets, which are used only when they are ready."""

    def __init__(self, lane: Lane, consumer: Consumer, timer: PeriodicTimer) -> None:
        self.lane = lane
        self.consumer = consumer
        self.timer = timer
        self.arrivals = Arrivals()
        self.sent = 0
        self.arrived = 0
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        first = lane.load.data[: lane.load.message_bytes].tobytes()
        self.stamp_at = first.index(TIMESTAMP_KEY) + len(TIMESTAMP_KEY)

    def on_ready(self, fd: int) -> None:
        if fd == self.timer.fd:
            for _ in range(min(self.timer.elapsed_periods(), self.lane.load.count - self.sent, BURST_LIMIT)):
                self.publish()
        elif fd == self.lane.sock.fileno():
            self.lane.take_answers(self.buffer)
        else:
            self.consume()

    def publish(self) -> None:
        load = self.lane.load
        first = self.sent * load.message_bytes
        stamp_at = first + self.stamp_at
        load.data[stamp_at : stamp_at + TIMESTAMP_DIGITS] = b"%019d" % time.perf_counter_ns()
        self.lane.sock.sendall(load.data[first : first + load.message_bytes])
        self.sent += 1

    def consume(self) -> None:
        size = self.consumer.sock.recv_into(self.buffer)
        now_ns = time.perf_counter_ns()
        if size == 0:
            raise PeerError("the server closed the consumer's connection")
        self.arrivals.take(self.buffer[:size].tobytes(), now_ns)
        self.arrived += self.consumer.take(self.buffer[:size])
        if self.arrived == self.lane.load.count and not self.consumer.finishing:
            self.consumer.finish()
        self.consumer.sock.sendall(self.consumer.outgoing)
        self.consumer.outgoing.clear()
