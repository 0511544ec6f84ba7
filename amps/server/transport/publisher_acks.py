"""Persisted acknowledgements for one publisher, made out of watermarks.

Messages are not tracked one by one. The ingress notes the highest sequence with a requested acknowledgement and the
ring position after it. When an acknowledgement is due, that pair becomes the *candidate*. Once the core has read the
ring up to that position, the log position written by then is an upper bound of the message's place. Once the durable
watermark has passed this bound, everything up to the candidate's sequence is durable, and one acknowledgement is sent.

A refused publish splits the stream: everything before it is acknowledged, then the failure is sent, at once
(protocol.md §5.3). Between failures acknowledgements are sent at most once per conflation interval.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from amps._core.wire.ingress import Ingress


class Clock(Protocol):
    """The worker's view of ring and watermarks, on which acknowledgements depend."""

    def consumed(self) -> int:
        """Ring position up to which the core has read records."""

    def written(self) -> int:
        """Log position up to which the journal is written."""

    def durable(self) -> int:
        """Log position up to which the journal is durable."""


@dataclass(slots=True)
class Failure:
    """A refused publish that requested `persisted`: sent after the success of all before it."""

    ring_position: int
    sequence: int
    reason: str
    success_before: int
    requests_before: int


@dataclass(slots=True)
class Candidate:
    """The acknowledgement that is sent next."""

    ring_position: int
    sequence: int
    requests: int
    failure: Failure | None
    log_position: int = -1


class Emitter(Protocol):
    """Sends the acknowledgements."""

    def persisted(self, sequence: int, reason: str | None) -> None:
        """Send one persisted acknowledgement: success, or failure with a reason."""


class PublisherAcks:
    """One connection's persisted acknowledgements."""

    # More refused publishes accumulate only if the publisher stops sending.
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
        """Whether any message is still to be acknowledged."""
        return bool(self._failures) or self._ingress.ack_requests > self._acked_requests

    @property
    def urgent(self) -> bool:
        """Whether a refused publish waits: it and the publishes before it are answered regardless of the interval."""
        return bool(self._failures)

    @property
    def crowded(self) -> bool:
        """Whether so many failures wait that the connection should not be read for now."""
        return len(self._failures) >= self.FAILURES_MAX

    def refuse(self, ring_position: int, sequence: int, reason: str) -> None:
        """Note that the publish with a sequence was refused; `ring_position` is the position of the ring then."""
        ingress = self._ingress
        self._failures.append(
            Failure(ring_position, sequence, reason, ingress.ack_sequence, ingress.ack_requests)
        )

    def advance(self, clock: Clock, now_s: float, force: bool = False) -> float | None:
        """Send the acknowledgements that may be sent. Return when to call again at the latest: a time, 0.0 = when a
        watermark moves, None = nothing is pending. `force` ignores the conflation interval.
        """
        while True:
            candidate = self._candidate
            if candidate is None or (candidate.failure is None and self._failures):
                candidate = self._candidate = self._choose()
                if candidate is None:
                    return None
            if candidate.failure is None and not force and now_s < self._next_time_s:
                # Not due yet; by then there may be a higher sequence.
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
            # A repeated sequence is a duplicate: it is covered by an acknowledgement of the highest one.
            self._acked_sequence = max(self._acked_sequence, candidate.sequence)
            self._emitter.persisted(self._acked_sequence, None)
            self._next_time_s = now_s + self._interval_s
        self._acked_requests = max(self._acked_requests, candidate.requests)
        if candidate.failure is not None:
            self._failures.popleft()
            self._emitter.persisted(candidate.failure.sequence, candidate.failure.reason)
