"""Time from publisher to subscriber at a fixed rate, without waiting for storage.

Publisher and subscriber are two connections of one process, so one clock times both ends: the send time
travels in the payload. A timer of the kernel paces the sender. A message of a late tick is sent late and
stamped late, so delays of the measuring process do not count against the server.
"""

import array
import ctypes
import os
import select
import time
from collections.abc import Sequence

import numpy as np

from perf import tables
from perf.load import TIMESTAMP_DIGITS, TIMESTAMP_KEY, payload, timestamp_offset
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer
from perf.peers.nats import NatsCore
from perf.peers.redis import RedisEverySecond
from perf.peers.server import LivePair, ServerPeer
from perf.pump import PeerError
from perf.scenarios.servers import ServerScenario

DEFAULT_RATE = 10_000
DEFAULT_LENGTH_S = 10.0
WARM_UP_S = 1.0
DRAIN_S = 5.0
CLOCK_MONOTONIC = 1
PR_SET_TIMERSLACK = 29
BURST_LIMIT = 100


class PeriodicTimer:
    """A timerfd: readable once per period; reading returns the number of periods that have passed."""

    def __init__(self, period_ns: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        self.fd = libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        seconds, nanoseconds = divmod(period_ns, 10**9)
        times = (ctypes.c_long * 4)(seconds, nanoseconds, seconds, nanoseconds)
        if libc.timerfd_settime(self.fd, 0, times, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def elapsed_periods(self) -> int:
        try:
            return int.from_bytes(os.read(self.fd, 8), "little")
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.fd)


class Arrivals:
    """Finds send times in the bytes that the subscriber receives."""

    def __init__(self) -> None:
        self.latencies_ns = array.array("q")
        self.rest = b""

    def take(self, chunk: bytes, now_ns: int) -> None:
        data = self.rest + chunk
        at = 0
        while (found := data.find(TIMESTAMP_KEY, at)) >= 0:
            digits = found + len(TIMESTAMP_KEY)
            if len(data) < digits + TIMESTAMP_DIGITS:
                break
            self.latencies_ns.append(now_ns - int(data[digits : digits + TIMESTAMP_DIGITS]))
            at = digits + TIMESTAMP_DIGITS
        self.rest = data[found:] if found >= 0 else data[max(at, len(data) - len(TIMESTAMP_KEY) + 1) :]


def run(pair: LivePair, rate: int, seconds: float) -> tuple[Arrivals, int]:
    """Send at `rate` for `seconds` and receive every message; return the arrivals and the number sent."""
    command = bytearray(pair.prefix + payload() + pair.suffix)
    stamp = slice(
        len(pair.prefix) + timestamp_offset(), len(pair.prefix) + timestamp_offset() + TIMESTAMP_DIGITS
    )
    total = int(rate * seconds)
    sent = 0
    arrivals = Arrivals()
    pair.subscriber.setblocking(False)
    poll = select.epoll()
    timer = PeriodicTimer(10**9 // rate)
    publisher_fd, subscriber_fd = pair.publisher.fileno(), pair.subscriber.fileno()
    for fd in (timer.fd, publisher_fd, subscriber_fd):
        poll.register(fd, select.EPOLLIN)
    deadline = time.monotonic() + seconds * 2 + DRAIN_S
    try:
        while len(arrivals.latencies_ns) < total:
            for fd, _event in poll.poll(1.0):
                if fd == subscriber_fd:
                    chunk = pair.subscriber.recv(262144)
                    if not chunk:
                        raise PeerError("the server closed the subscriber's connection")
                    arrivals.take(chunk, time.perf_counter_ns())
                elif fd == timer.fd:
                    due = min(timer.elapsed_periods(), total - sent, BURST_LIMIT)
                    for _ in range(due):
                        command[stamp] = b"%019d" % time.perf_counter_ns()
                        pair.publisher.sendall(command)
                    sent += due
                else:
                    pair.publisher.recv(65536)  # replies and pings of some protocols
            if time.monotonic() > deadline:
                raise PeerError(f"{len(arrivals.latencies_ns)} of {total} messages arrived in time")
    finally:
        poll.close()
        timer.close()
    return arrivals, sent


class LiveLatency(ServerScenario):
    name = "live-latency"
    question = "Time from publisher to subscriber at a fixed rate"
    peers = (AmpsPeer(), NatsCore(), RedisEverySecond())

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        pair = server.live_pair()
        rate = settings.rate or DEFAULT_RATE
        run(pair, rate, WARM_UP_S)
        cpu_before, load_before, started = server.cpu(), time.process_time(), time.perf_counter()
        arrivals, sent = run(pair, rate, settings.seconds or DEFAULT_LENGTH_S)
        elapsed_s = time.perf_counter() - started
        load_cpu_s = time.process_time() - load_before
        server_cpu = server.cpu().since(cpu_before)
        pair.publisher.close()
        pair.subscriber.close()
        p50, p99, p999 = np.percentile(np.array(arrivals.latencies_ns), [50, 99, 99.9]) / 1000
        values = {
            "p50_us": round(float(p50), 1),
            "p99_us": round(float(p99), 1),
            "p999_us": round(float(p999), 1),
            "max_us": round(max(arrivals.latencies_ns) / 1000, 1),
            "messages_per_s": round(sent / elapsed_s),
        }
        return Measurement(values, sent, elapsed_s, server_cpu, load_cpu_s)

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
