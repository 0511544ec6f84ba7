"""Persisted acknowledgements for one publisher, made out of watermarks.

Messages are not tracked one by one. The ingress notes the highest sequence with a requested acknowledgement and the
ring position after it. When an acknowledgement is due, that pair becomes the *candidate*. Once the core has read the
ring up to that position, the log position written by then is an upper bound of the message's place. Once the durable
watermark has passed this bound, everything up to the candidate's sequence is durable, and one acknowledgement is sent.

With destinations of replication, the candidate also waits for those that are sync (replication.md §7). That may take
long. So checkpoints (wire/ack_checkpoints.pxi) are kept: the publisher is acknowledged up to the last one that is fully
persisted, while the candidate still waits. AckSchedule does not ask again until the destination has what the first
other checkpoint needs.

A refused publish splits the stream: everything before it is acknowledged, then the failure is sent, at once
(protocol.md §5.3). Between failures acknowledgements are sent at most once per conflation interval.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from amps._core.wire.ingress import Ingress
from amps._core.wire.persisted import AckCheckpoints, Destinations

AWAITS_DESTINATION = -1.0
"""What `advance` returns if a destination of replication is waited for, up to `awaited_position`."""


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

    def __init__(
        self,
        ingress: Ingress,
        emitter: Emitter,
        interval_s: float,
        publisher_id: int = 0,
        destinations: Destinations | None = None,
    ) -> None:
        """`publisher_id`: of the messages, which wait for `destinations`; None: there are none."""
        self.publisher_id = publisher_id
        self.awaited_position = 0
        """Log position up to which the messages wait for a destination, after `advance` has said so."""
        self._destinations = destinations
        self._checkpoints = None if destinations is None else AckCheckpoints()
        self._ingress = ingress
        self._emitter = emitter
        self._interval_s = interval_s
        self._failures: deque[Failure] = deque()
        self._refused: set[int] = set()  # sequences above the acknowledged ones that were refused
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

    def note_place(self) -> bool:
        """Note how far input was processed, if a destination may be waited for. True: call `resolve` in each turn until
        it returns True.
        """
        if self._destinations is None or self._checkpoints is None or not self._destinations.any_sync:
            return False
        ingress = self._ingress
        self._checkpoints.note(ingress.ack_position, ingress.ack_sequence, ingress.ack_requests)
        return True

    def resolve(self, clock: Clock) -> bool:
        """Bound the log positions of the noted places, as far as the core has read. True: of all of them."""
        return self._checkpoints is None or self._checkpoints.resolve(clock.consumed(), clock.written())

    def refuse(self, ring_position: int, sequence: int, reason: str) -> None:
        """Note that the publish with a sequence was refused; `ring_position` is the position of the ring then."""
        ingress = self._ingress
        self._refused.add(sequence)
        self._failures.append(
            Failure(ring_position, sequence, reason, ingress.ack_sequence, ingress.ack_requests)
        )

    def refuse_taken(self, sequence: int, reason: str) -> None:
        """Answer a publish at once that the core has refused. A success never covers it as the last one."""
        self._refused.add(sequence)
        self._emitter.persisted(sequence, reason)

    def advance(self, clock: Clock, now_s: float, force: bool = False) -> float | None:
        """Send the acknowledgements that may be sent. Return when to call again at the latest: a time, 0.0 = when a
        watermark moves, AWAITS_DESTINATION, None = nothing is pending. `force` ignores the conflation interval.
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
            if self._destinations is not None and not self._destinations.are_persisted(
                self.publisher_id, candidate.log_position
            ):
                self._send_partly(self._destinations, candidate, clock.durable(), now_s, force)
                return AWAITS_DESTINATION
            self._candidate = None
            self._send(candidate, now_s)

    def _send_partly(
        self, destinations: Destinations, candidate: Candidate, durable: int, now_s: float, force: bool
    ) -> None:
        """Send the success of all messages before the first checkpoint that waits for a destination."""
        assert self._checkpoints is not None
        found, awaited = self._checkpoints.take_persisted(
            destinations, self.publisher_id, durable, candidate.ring_position
        )
        self.awaited_position = min(awaited or candidate.log_position, candidate.log_position)
        if found is None:
            return
        sequence, requests = found
        if sequence > self._acked_sequence and (force or now_s >= self._next_time_s):
            self._send_success(sequence, requests, now_s)

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
            self._send_success(candidate.sequence, candidate.requests, now_s)
        self._acked_requests = max(self._acked_requests, candidate.requests)
        if candidate.failure is not None:
            self._failures.popleft()
            self._emitter.persisted(candidate.failure.sequence, candidate.failure.reason)

    def _send_success(self, sequence: int, requests: int, now_s: float) -> None:
        before = self._acked_sequence
        self._acked_sequence = max(self._acked_sequence, sequence)
        self._acked_requests = max(self._acked_requests, requests)
        told = self._acked_sequence
        if self._refused:
            while told in self._refused and told > before:
                told -= 1
            self._refused = {refused for refused in self._refused if refused > self._acked_sequence}
            if told <= before:
                return
        self._emitter.persisted(told, None)
        self._next_time_s = now_s + self._interval_s
