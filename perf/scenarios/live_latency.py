"""Time from publisher to subscriber at a fixed rate, nothing stored in between being waited for.

Publisher and subscriber are two connections of one process, so one clock times both ends: the send time
travels in the payload. A timer of the kernel paces the sender; a tick that comes late is sent late and
stamped late, so the measuring process's own delays do not count against the server.
"""

import array
import ctypes
import os
import select
import time

import numpy as np

from perf.load import TIMESTAMP_DIGITS, TIMESTAMP_KEY, payload, timestamp_offset
from perf.peers.base import LivePair, Peer
from perf.pump import PeerError
from perf.scenarios.common import Measurement, Settings

WARM_UP_S = 1.0
DRAIN_S = 5.0
CLOCK_MONOTONIC = 1
PR_SET_TIMERSLACK = 29
BURST_LIMIT = 100


class PeriodicTimer:
    """A timerfd: readable once per period; reading tells how many periods have passed."""

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
    """Finds send times in the subscriber's bytes."""

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
    """Send at `rate` for `seconds`, receive all of it; the arrivals and the number sent."""
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


def measure(peer: Peer, settings: Settings) -> Measurement:
    pair = peer.live_pair()
    run(pair, settings.rate, WARM_UP_S)
    cpu_before, load_before, started = peer.cpu(), time.process_time(), time.perf_counter()
    arrivals, sent = run(pair, settings.rate, settings.seconds)
    elapsed_s = time.perf_counter() - started
    load_cpu_s = time.process_time() - load_before
    server_cpu = peer.cpu().since(cpu_before)
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
