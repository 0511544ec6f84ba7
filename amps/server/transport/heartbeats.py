"""Heartbeats of one connection (protocol.md §15). The client requests them. They are sent while no other output is, and
must be answered.

Only a heartbeat requires an answer. A client that gets messages all the time gets no heartbeats, and need not send
anything.
"""

import time

from amps.server.clock import Timer
from amps.server.transport.answering import Header, text_of, wanted_acks
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import parse_interval
from amps.server.transport.session import Session

CLOCK_S = 0.001  # the event loop's timers may fire that early


class Heartbeat:
    """The heartbeat of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._interval_s = 0.0
        self._asked_s: float | None = None  # when the first unanswered heartbeat was sent
        self._asked_real_s = 0.0  # the same on the system's clock: an advanced clock gives clients no time to answer
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """Stop the timer: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def do(self, header: Header) -> None:
        """The command `heartbeat`. Raises CommandFailure."""
        connection = self._connection
        text = text_of(header, "opts") or text_of(header, "heartbeat")
        if header.get("heartbeat") is not None and header.get("timeout_interval") is not None:
            text += f",{header['timeout_interval']}"
        words = [word.strip() for word in text.split(",") if word.strip()]
        wanted = wanted_acks(header)
        if words[:1] == ["start"] and len(words) == 2:
            try:
                interval_s = parse_interval(words[1])
            except ValueError as error:
                raise CommandFailure("invalid options", str(error)) from error
            self._start(interval_s)
        elif words == ["stop"]:
            self._start(0.0)
        elif words not in ([], ["beat"], ["none"]):
            raise CommandFailure("invalid options", f"heartbeat {text!r}")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, header.get("cmd_id"))

    def _start(self, interval_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._interval_s = interval_s
        self._asked_s = None
        if interval_s > 0:
            self._timer = self._worker.clock.call_later(self._worker.loop, interval_s, self._due)

    def _due(self) -> None:
        """Send a heartbeat if no other output was sent for an interval. Disconnect a client that does not answer within
        two (§15).
        """
        connection, worker = self._connection, self._worker
        now = worker.now_s()
        interval = self._interval_s
        # Input that arrived while input is held may contain an answer.
        if self._asked_s is not None and (connection.held or connection.last_input_s > self._asked_s):
            self._asked_s = None
        # Two timers have fired since.
        if self._asked_s is not None and time.monotonic() + 2 * CLOCK_S >= self._asked_real_s + 2 * interval:
            worker.log.log("07-0042", client=connection.shown_name)
            connection.dismiss("heartbeat", "no input came from this client within two intervals")
            return
        wait = connection.last_output_s + interval - now
        if wait <= CLOCK_S:
            connection.send({"cmd": "heartbeat"})
            worker.schedule()
            wait = interval
            if self._asked_s is None:
                self._asked_s = now
                self._asked_real_s = time.monotonic()
        self._timer = worker.clock.call_later(worker.loop, wait, self._due)
