"""Advancing the clock of an embedded server (clock.py): when have all processes passed the new time?

The supervisor raises the offset. Then it asks, one after the other, for each step waits for the one before:

    core        passes the time: leases end, messages expire, queues deliver; until it has nothing to do and its
                records are durable
    transports  call their due timers, and pass deliveries, held messages and heartbeats to the connections
    services    run due schedules, and the actions for messages that have left queues

Services publish, transports answer questions of the core, and clients may answer, too. So the round is repeated until
processes passed nothing to each other in it; at most ROUNDS_MAX times, for clients may publish all the time. A process
that is restarted meanwhile is asked again, because the new one reads the new time from its first turn on.

Messages: out `["clock", round]` to each process, in `["clock passed", round]`. The requests of the program are
described in amps/embedded/manual_clock.py.
"""

import contextlib
import time
from collections.abc import Callable, Sequence

from amps.server.children import Child
from amps.server.clock import ManualClock
from amps.server.runtime import Runtime

ROUNDS_MAX = 10
LIMIT_S = 20.0
_REQUEST_BYTES_MAX = 256

Stage = Callable[[], Sequence[Child | None]]
"""The processes to ask in one step; None for one that is not running."""


class Advancing:
    """The advances of one instance, one at a time. It never blocks: the supervisor calls `step` again and again."""

    def __init__(
        self,
        clock: ManualClock,
        runtime: Runtime,
        stages: Sequence[Stage],
        tell: Callable[..., None],
    ) -> None:
        """`tell(child, *message)` sends a message to a process."""
        self._clock = clock
        self._runtime = runtime
        self._stages = stages
        self._tell = tell
        self._number = b""  # of the request
        self._round = 0
        self._rounds_left = 0
        self._stage = 0
        self._until_s = 0.0
        self._traffic: object = None  # at the beginning of the round
        self._asked: dict[int, bool] = {}  # process id -> whether it has passed; of this stage
        self.open = True

    @property
    def busy(self) -> bool:
        """Whether an advance is in progress."""
        return self._rounds_left > 0

    @property
    def requests(self) -> int:
        """The descriptor of the connection to the program."""
        return self._clock.requests.fileno()

    def close(self) -> None:
        """Close this process's copy of the connection, in a forked child."""
        self._clock.requests.close()

    def receive(self) -> None:
        """Take a request of the program, if there is one and none is in progress."""
        if self.busy:
            return
        try:
            data = self._clock.requests.recv(_REQUEST_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.open = False
            return
        _, self._number, by_ns = data.split()
        try:
            self._clock.advance(int(by_ns))
        except ValueError as problem:
            self._answer(f"failed {problem}")
            return
        self._rounds_left = ROUNDS_MAX
        self._until_s = time.monotonic() + LIMIT_S
        self._begin_round()
        self.step()

    def _begin_round(self) -> None:
        self._round += 1
        self._traffic = self._traffic_now()
        self._begin_stage(0)

    def _traffic_now(self) -> object:
        """What processes have passed to each other so far: written records, and bytes in both directions."""
        runtime = self._runtime
        rings = [ring.head for ring in (*runtime.ingress, *runtime.egress)]
        return runtime.control.watermarks(), rings

    def _begin_stage(self, stage: int) -> None:
        self._stage = stage
        self._asked = {}

    def passed(self, child: Child, round_: int) -> None:
        """Note that a process has passed the time of a round."""
        if round_ == self._round and child.pid in self._asked:
            self._asked[child.pid] = True
            self.step()

    def step(self) -> None:
        """Go on as far as possible: ask processes, also new ones, and end the round."""
        while self.busy:
            children = self._stages[self._stage]()
            ready = [child for child in children if child is not None and child.ready]
            for child in ready:
                if child.pid not in self._asked:
                    self._asked[child.pid] = False
                    self._tell(child, "clock", self._round)
            if len(ready) < len(children) or not all(self._asked[child.pid] for child in ready):
                if time.monotonic() >= self._until_s:
                    self._end(f"failed a process has not passed the new time within {LIMIT_S:g} s")
                return
            if self._stage + 1 < len(self._stages):
                self._begin_stage(self._stage + 1)
            elif self._rounds_left == 1 or self._traffic_now() == self._traffic:
                self._end("ok")
            else:
                self._rounds_left -= 1
                self._begin_round()

    def _end(self, text: str) -> None:
        self._rounds_left = 0
        self._answer(text)

    def _answer(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the program has ended, and its starter ends this server
            self._clock.requests.send(self._number + b" " + text.encode())
