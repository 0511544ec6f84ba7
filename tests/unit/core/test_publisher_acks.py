"""Conflated persisted acknowledgements against a model that tracks every single message."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from amps.server.transport.publisher_acks import PublisherAcks

RECORD_BYTES = 100
INTERVAL_S = 1.0


@dataclass
class Sent:
    """A publish in the model."""

    sequence: int
    wants: bool
    refused: bool
    ring_end: int
    log_end: int = -1


@dataclass
class Model:
    """Ring, log and device, one message at a time; also the clock and the emitter of the code under test."""

    ack_sequence: int = 0
    ack_position: int = 0
    ack_requests: int = 0
    sent: list[Sent] = field(default_factory=list)
    ring: int = 0
    taken: int = 0
    log: int = 0
    on_device: int = 0
    now_s: float = 0.0
    emitted: list[tuple[int, str | None, float]] = field(default_factory=list)

    # Calls of PublisherAcks

    def consumed(self) -> int:
        return self.taken

    def written(self) -> int:
        return self.log

    def durable(self) -> int:
        return self.on_device

    def persisted(self, sequence: int, reason: str | None) -> None:
        """Check an acknowledgement at the moment when it is sent."""
        self.emitted.append((sequence, reason, self.now_s))
        if reason is None:
            for message in self.sent:
                if message.sequence <= sequence and not message.refused:
                    assert 0 <= message.log_end <= self.on_device, f"{message} is not durable"
        else:
            before = [m.sequence for m in self.sent if m.sequence < sequence and m.wants and not m.refused]
            successes = [s for s, why, _ in self.emitted if why is None]
            assert max(before, default=0) <= max(successes, default=0), "a failure overtook a success"

    # Events

    def publish(self, wants: bool) -> None:
        self.ring += RECORD_BYTES
        sequence = len(self.sent) + 1
        self.sent.append(Sent(sequence, wants, False, self.ring))
        if wants:
            self.ack_sequence, self.ack_position = sequence, self.ring
            self.ack_requests += 1

    def refuse(self, acks: PublisherAcks) -> None:
        sequence = len(self.sent) + 1
        self.sent.append(Sent(sequence, True, True, self.ring))
        acks.refuse(self.ring, sequence, "not entitled")

    def take(self, messages: int) -> None:
        for message in self.sent:
            if message.log_end < 0 and not message.refused and messages:
                messages -= 1
                self.log += RECORD_BYTES + 8
                message.log_end = self.log
                self.taken = message.ring_end

    def sync(self, share: float) -> None:
        self.on_device += int((self.log - self.on_device) * share)


events = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.booleans()),
        st.tuples(st.just("refuse"), st.none()),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("sync"), st.sampled_from([0.5, 1.0])),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 0.6, 2.0])),
        st.tuples(st.just("advance"), st.booleans()),
    ),
    max_size=80,
)


@settings(max_examples=500, deadline=None)
@given(events)
def test_acks_promise_durable_messages_only(script: list[tuple[str, object]]) -> None:
    model = Model()
    acks = PublisherAcks(model, model, INTERVAL_S)  # type: ignore[arg-type]
    forced_s: set[float] = set()
    for event, value in script:
        if event == "publish":
            model.publish(bool(value))
        elif event == "refuse":
            model.refuse(acks)
        elif event == "take":
            assert isinstance(value, int)
            model.take(value)
        elif event == "sync":
            assert isinstance(value, float)
            model.sync(value)
        elif event == "wait":
            assert isinstance(value, float)
            model.now_s += value
        else:
            if value:
                forced_s.add(model.now_s)
            due = acks.advance(model, model.now_s, force=bool(value))
            assert (due is None) == (not acks.pending)
            assert due is None or due == 0.0 or due > model.now_s
    check_rate(model, forced_s)
    finish(model, acks)


def check_rate(model: Model, forced_s: set[float]) -> None:
    """protocol.md §5.3: one per interval, apart from those that a failure or a flush requires."""
    last_s = -INTERVAL_S
    for place, (_, reason, at_s) in enumerate(model.emitted):
        if reason is not None:
            continue
        before_failure = place + 1 < len(model.emitted) and model.emitted[place + 1][1] is not None
        if not before_failure and at_s not in forced_s:
            assert at_s - last_s >= INTERVAL_S - 1e-9
        last_s = at_s


def finish(model: Model, acks: PublisherAcks) -> None:
    """When everything is durable and time passes, every message is answered, each failure once and in order."""
    model.take(len(model.sent))
    model.sync(1.0)
    model.now_s += 2 * INTERVAL_S
    due = acks.advance(model, model.now_s)
    if due is not None:
        # A failure sends the success before it at once; the next success waits for its interval.
        model.now_s = due
        assert acks.advance(model, model.now_s) is None
    assert not acks.pending
    successes = [sequence for sequence, reason, _ in model.emitted if reason is None]
    assert successes == sorted(successes)
    wanted = [m.sequence for m in model.sent if m.wants and not m.refused]
    assert max(successes, default=0) == max(wanted, default=0)
    failures = [sequence for sequence, reason, _ in model.emitted if reason is not None]
    assert failures == [m.sequence for m in model.sent if m.refused]


def test_acks_protocol_5_3_a_failure_splits_the_stream() -> None:
    """protocol.md §5.3: 1..5 sent, 3 refused: success 2 and failure 3 at once; success 5 with the next interval."""
    model = Model()
    acks = PublisherAcks(model, model, INTERVAL_S)  # type: ignore[arg-type]
    model.publish(True)
    model.publish(True)
    model.refuse(acks)
    model.publish(True)
    model.publish(True)
    model.take(5)
    model.sync(1.0)
    acks.advance(model, 0.0)
    assert [(s, r) for s, r, _ in model.emitted] == [(2, None), (3, "not entitled")]
    acks.advance(model, INTERVAL_S)
    assert [(s, r) for s, r, _ in model.emitted][2:] == [(5, None)]


def test_acks_a_duplicate_is_covered_by_the_highest() -> None:
    """transaction_log.md §20 26: publishing 7 again after 9 was acknowledged is answered with 9."""
    model = Model()
    acks = PublisherAcks(model, model, INTERVAL_S)  # type: ignore[arg-type]
    model.sent = [Sent(n, False, False, 0, 0) for n in range(1, 9)]
    model.publish(True)
    model.take(9)
    model.sync(1.0)
    acks.advance(model, 0.0)
    model.ack_sequence, model.ack_requests = 7, 2
    acks.advance(model, 5.0)
    assert [(s, r) for s, r, _ in model.emitted] == [(9, None), (9, None)]


def test_acks_too_many_failures_hold_the_publisher() -> None:
    model = Model()
    acks = PublisherAcks(model, model, INTERVAL_S)  # type: ignore[arg-type]
    model.publish(True)
    while not acks.crowded:
        model.refuse(acks)
    assert len(model.sent) == PublisherAcks.FAILURES_MAX + 1
    model.take(1)
    model.sync(1.0)
    acks.advance(model, 0.0)
    assert not acks.crowded
    assert not acks.pending
