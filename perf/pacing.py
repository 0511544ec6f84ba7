"""Publishing at a fixed rate in the background, while something else is measured.

A thread sends prebuilt messages when they are due, and counts the answers. It is one more publisher of the peer, with
the same loads as `perf.pump`, a new connection every LANE_S. A server that does not take messages fast enough gets them
later: then the rate that was reached is lower than the wanted one, and the caller says so.
"""

import contextlib
import select
import threading
import time
from collections.abc import Callable

from perf.pump import RECEIVE_BYTES, STALL_S, Lane, PeerError

TICK_S = 0.005
LANE_S = 10.0


class PacedPublisher:
    """Publishes `rate` messages per second from `start` to `stop`. make_lane(count): a new connection with its load."""

    def __init__(self, make_lane: Callable[[int], Lane], rate: int) -> None:
        self._make_lane = make_lane
        self._rate = rate
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._acknowledged = 0
        self._began_s = self._ended_s = 0.0
        self._lane = self._next_lane()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Publish from now on."""
        self._began_s = time.perf_counter()
        self._thread.start()

    def stop(self) -> tuple[int, float]:
        """Publish no more. The number of messages, all acknowledged, and how many of them per second were sent.

        Raises PeerError.
        """
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._acknowledged, self._acknowledged / (self._ended_s - self._began_s)

    def _next_lane(self) -> Lane:
        lane = self._make_lane(max(1, int(self._rate * LANE_S)))
        lane.sock.setblocking(False)
        lane.stop_at = 0
        return lane

    def _run(self) -> None:
        try:
            while not self._pump():
                self._lane.sock.close()
                self._lane = self._next_lane()
        except (OSError, PeerError) as failure:
            self._failure = failure
        finally:
            self._lane.sock.close()

    def _pump(self) -> bool:
        """Send the load of one connection. True: it was the last one."""
        lane = self._lane
        before = self._acknowledged
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        poll = select.poll()
        poll.register(lane.sock, select.POLLIN)
        answered_s = time.perf_counter()
        stopping = False
        while not (lane.done and (stopping or lane.stop_at == lane.load.count)):
            now = time.perf_counter()
            if not stopping:
                stopping = self._stopping.is_set()
                self._ended_s = now
                lane.stop_at = min(lane.load.count, int((now - self._began_s) * self._rate) - before)
            if lane.wants_to_send:
                lane.send_some()
            if poll.poll(TICK_S * 1000):
                with contextlib.suppress(BlockingIOError):
                    self._acknowledged += lane.take_answers(buffer)
                answered_s = time.perf_counter()
            elif lane.done:
                answered_s = now
            elif now - answered_s > STALL_S:
                raise PeerError(f"no answer for {STALL_S:g} s at {self._rate} messages per second")
        return stopping
