"""Conflated persisted acknowledgements that wait for destinations, against a model that tracks every message
(replication.md §7, §8).
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from amps.server.transport.publisher_acks import AWAITS_DESTINATION, PublisherAcks
from tests.support.destinations import RECORD_BYTES, World

OWN, OTHER = 101, 102
INTERVAL_S = 1.0
RING_BYTES = 80


@dataclass(slots=True)
class Publish:
    """A publish of the connection. `log_end` -1: the core has not read it."""

    sequence: int
    ring_end: int
    refused: bool
    carried: set[int]
    log_end: int = -1


@dataclass
class Connection:
    """Ring, core and device of one publisher, and the emitter; the log is that of the world."""

    world: World
    ack_sequence: int = 0
    ack_position: int = 0
    ack_requests: int = 0
    sent: list[Publish] = field(default_factory=list)
    taken: int = 0
    on_device: int = 0
    now_s: float = 0.0
    emitted: list[tuple[int, str | None]] = field(default_factory=list)

    # Calls of PublisherAcks

    def consumed(self) -> int:
        return self.taken

    def written(self) -> int:
        return self.world.end

    def durable(self) -> int:
        return self.on_device

    def persisted(self, sequence: int, reason: str | None) -> None:
        """Check an acknowledgement at the moment when it is sent."""
        self.emitted.append((sequence, reason))
        covered = [one for one in self.sent if one.sequence <= sequence and not one.refused]
        for one in covered:
            assert 0 <= one.log_end <= self.on_device, f"{one} is not durable"
        if covered:
            assert not self.world.lacks(OWN, covered[-1].log_end), "a sync destination lacks a message"
        if reason is None:
            refused = [one.sequence for one in self.sent if one.refused and one.sequence < sequence]
            told = [number for number, why in self.emitted if why is not None]
            assert set(refused) <= set(told), "a success overtook a failure"
        else:
            successes = [number for number, why in self.emitted if why is None]
            assert not covered or max(successes, default=0) == covered[-1].sequence, "a failure overtook a success"

    # Events

    @property
    def ring(self) -> int:
        return self.sent[-1].ring_end if self.sent else 0

    def publish(self, acks: PublisherAcks, carried: set[int], refused: bool) -> None:
        sequence = len(self.sent) + 1
        if refused:
            acks.refuse(self.ring, sequence, "not entitled")
            self.sent.append(Publish(sequence, self.ring, True, set()))
            return
        self.sent.append(Publish(sequence, self.ring + RING_BYTES, False, carried))
        self.ack_sequence, self.ack_position = sequence, self.ring
        self.ack_requests += 1

    def take(self, messages: int) -> None:
        for one in self.sent:
            if one.log_end < 0 and not one.refused and messages:
                messages -= 1
                self.world.publish(OWN, one.carried)
                one.log_end = self.world.end
                self.taken = one.ring_end

    def sync(self) -> None:
        self.on_device = self.world.end


events = st.lists(
    st.tuples(
        st.sampled_from(
            ("publish", "publish", "publish", "refuse", "take", "take", "sync", "sync", "wait", "note", "advance",
             "advance", "force", "other", "scan", "scan", "acknowledge", "acknowledge", "except", "restart", "mode")
        ),
        st.integers(0, 1),
        st.integers(0, 4),
    ),
    max_size=120,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(events)
def test_acks_promise_what_all_sync_destinations_have(script: list[tuple[str, int, int]]) -> None:
    """replication.md §7, §26 behaviours 2 to 6; also with downgrades and upgrades, and refused messages between."""
    world = World(2)
    model = Connection(world)
    acks = PublisherAcks(model, model, INTERVAL_S, OWN, world.destinations)  # type: ignore[arg-type]
    for name, index, number in script:
        carried = {one for one in (0, 1) if number >> one & 1}
        if name in ("publish", "refuse"):
            model.publish(acks, carried, name == "refuse")
        elif name == "take":
            model.take(number)
            acks.resolve(model)
        elif name == "sync":
            model.sync()
        elif name == "wait":
            model.now_s += number / 2
        elif name == "note":
            acks.note_place()
        elif name in ("advance", "force"):
            due = acks.advance(model, model.now_s, force=name == "force")
            assert (due is None) == (not acks.pending)
            if due == AWAITS_DESTINATION:
                assert not world.destinations.are_persisted(OWN, acks.awaited_position)
        elif name == "other":
            world.publish(OTHER, carried)
        else:
            world.event(name, index, number, OWN if index else OTHER)
    # When the destinations have everything, and time passes, every message is answered.
    model.take(len(model.sent))
    model.sync()
    world.settle()
    for _ in range(2):
        model.now_s += 2 * INTERVAL_S
        acks.advance(model, model.now_s)
    assert not acks.pending
    successes = [sequence for sequence, reason in model.emitted if reason is None]
    assert successes == sorted(set(successes))
    assert max(successes, default=0) == max((one.sequence for one in model.sent if not one.refused), default=0)
    assert [sequence for sequence, reason in model.emitted if reason] == [m.sequence for m in model.sent if m.refused]


def test_a_publisher_is_acked_up_to_its_first_message_that_a_destination_lacks() -> None:
    """replication.md §7: the destination stops in the middle of a stream."""
    world = World(1)
    model = Connection(world)
    acks = PublisherAcks(model, model, INTERVAL_S, OWN, world.destinations)  # type: ignore[arg-type]
    for _ in range(10):
        model.publish(acks, {0}, False)
        assert acks.note_place()
        model.take(1)
        assert acks.resolve(model)
    model.sync()
    world.scan(0, 10)
    world.acknowledge(0, 7)
    assert acks.advance(model, model.now_s) == AWAITS_DESTINATION
    assert model.emitted == [(7, None)]
    assert acks.awaited_position == 8 * RECORD_BYTES, "the next message is looked at as soon as the destination has it"
    world.change_mode(0)
    model.now_s += INTERVAL_S
    assert acks.advance(model, model.now_s) is None
    assert model.emitted == [(7, None), (10, None)]


def test_a_success_behind_a_refused_message_does_not_overtake_it() -> None:
    """protocol.md §5.3: what is persisted behind the refused message is told after the failure."""
    world = World(1)
    model = Connection(world)
    acks = PublisherAcks(model, model, INTERVAL_S, OWN, world.destinations)  # type: ignore[arg-type]
    model.publish(acks, set(), False)
    acks.note_place()
    model.publish(acks, set(), True)
    model.publish(acks, set(), False)
    acks.note_place()
    model.take(2)
    acks.resolve(model)
    world.publish(OWN, {0})  # of another connection of this publisher
    model.sync()
    world.scan(0, 3)
    assert acks.advance(model, model.now_s) == AWAITS_DESTINATION
    assert model.emitted == [(1, None)]


def test_places_are_noted_only_while_a_destination_is_waited_for() -> None:
    world = World(1)
    world.change_mode(0)
    model = Connection(world)
    acks = PublisherAcks(model, model, INTERVAL_S, OWN, world.destinations)  # type: ignore[arg-type]
    model.publish(acks, {0}, False)
    assert not acks.note_place()
    assert not PublisherAcks(model, model, INTERVAL_S).note_place()  # type: ignore[arg-type]
