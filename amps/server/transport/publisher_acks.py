"""Persisted acknowledgements for one publisher, made out of watermarks.

No message is booked. The ingress notes the highest sequence that asked to be acknowledged and the ring position
after it. When an acknowledgement is due, that pair becomes the *candidate*: once the core has consumed the ring up to
the position, the log position written by then is an upper bound of the message's place; once the durable watermark
has passed that, everything up to the candidate's sequence is on the device, and one acknowledgement says so.

A refused publish splits the stream: what went before it is acknowledged, then the failure is sent, at once
(protocol.md §5.3). Between failures acknowledgements come at most once per conflation interval.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from amps._core.wire.ingress import Ingress


class Clock(Protocol):
    """What an acknowledgement depends on: the worker's view of ring and watermarks."""

    def consumed(self) -> int:
        """Ring position up to which the core has taken records."""

    def written(self) -> int:
        """Log position up to which the journal is written."""

    def durable(self) -> int:
        """Log position up to which the journal is durable."""


@dataclass(slots=True)
class Failure:
    """A refused publish that asked for `persisted`: sent after the success of all before it."""

    ring_position: int
    sequence: int
    reason: str
    success_before: int
    requests_before: int


@dataclass(slots=True)
class Candidate:
    """What will be acknowledged next."""

    ring_position: int
    sequence: int
    requests: int
    failure: Failure | None
    log_position: int = -1


class Emitter(Protocol):
    """Sends the acknowledgements."""

    def persisted(self, sequence: int, reason: str | None) -> None:
        """One persisted ack: success, or failure with a reason."""


class PublisherAcks:
    """One connection's persisted acknowledgements."""

    # More refused publishes than this wait for their turn only if the publisher stops sending.
    FAILURES_MAX = 1000

    def __init__(self, ingress: Ingress, emitter: Emitter, interval_s: float) -> None:
        self._ingress = ingress
        self._emitter = emitter
        self._interval_s = interval_s
        self._failures: deque[Failure] = deque()
        self._candidate: Candidate | None = None
        self._acked_requests = 0
        self._acked_sequence = 0
        self._next_time_s = 0.0

    @property
    def pending(self) -> bool:
        """Whether anything is still to be acknowledged."""
        return bool(self._failures) or self._ingress.ack_requests > self._acked_requests

    @property
    def urgent(self) -> bool:
        """A refused publish waits: it and what went before it are answered without regard to the interval."""
        return bool(self._failures)

    @property
    def crowded(self) -> bool:
        """Too many failures wait: the connection should not be read for now."""
        return len(self._failures) >= self.FAILURES_MAX

    def refuse(self, ring_position: int, sequence: int, reason: str) -> None:
        """A publish with that sequence was refused; `ring_position` is where the ring stood."""
        ingress = self._ingress
        self._failures.append(
            Failure(ring_position, sequence, reason, ingress.ack_sequence, ingress.ack_requests)
        )

    def advance(self, clock: Clock, now_s: float, force: bool = False) -> float | None:
        """Send what may be sent. Returns when to call again at the latest: a time, 0.0 = when a watermark moves,
        None = nothing is pending. `force` ignores the conflation interval.
        """
        while True:
            candidate = self._candidate
            if candidate is None or (candidate.failure is None and self._failures):
                candidate = self._candidate = self._choose()
                if candidate is None:
                    return None
            if candidate.failure is None and not force and now_s < self._next_time_s:
                # Not due yet; by then a higher sequence may be there.
                self._candidate = None
                return self._next_time_s
            if candidate.log_position < 0:
                if clock.consumed() < candidate.ring_position:
                    return 0.0
                candidate.log_position = clock.written()
            if clock.durable() < candidate.log_position:
                return 0.0
            self._candidate = None
            self._send(candidate, now_s)

    def _choose(self) -> Candidate | None:
        if self._failures:
            failure = self._failures[0]
            return Candidate(failure.ring_position, failure.success_before, failure.requests_before, failure)
        ingress = self._ingress
        if ingress.ack_requests > self._acked_requests:
            return Candidate(ingress.ack_position, ingress.ack_sequence, ingress.ack_requests, None)
        return None

    def _send(self, candidate: Candidate, now_s: float) -> None:
        if candidate.failure is None or candidate.sequence > self._acked_sequence:
            # A repeated number is a duplicate: covered by an acknowledgement of the highest one.
            self._acked_sequence = max(self._acked_sequence, candidate.sequence)
            self._emitter.persisted(self._acked_sequence, None)
            self._next_time_s = now_s + self._interval_s
        self._acked_requests = max(self._acked_requests, candidate.requests)
        if candidate.failure is not None:
            self._failures.popleft()
            self._emitter.persisted(candidate.failure.sequence, candidate.failure.reason)
