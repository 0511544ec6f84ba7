"""Publishers to SOW topics, and the worker that they are connected to.

A publisher owns some keys of each topic, so it knows the order of the changes of a key. It repeats a message unchanged
after every death of the server, as the client of `clients` does.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from amps._core.values.value import derived_publisher_id
from amps._core.wire.framing import encode_frame
from amps._core.wire.topics import SowRules, TopicTable
from amps.server.records import KIND_DECLARE_TOPIC, control_record
from amps.server.runtime import Runtime
from tests.simulation.clients import Client, Message, Wire
from tests.simulation.transports import Transport
from tests.support.records import FLAG_DERIVED_PUBLISHER, RecordParts, padded, ring_position
from tests.support.sow_core import KIND_SOW_DELETE

KEPT, PLAIN = "kept", "loose"
"""Topics with values: the journal has the first, the second is in its value file alone."""
IDS = 24
LIFETIMES_S = (None, None, None, 0, 1, 5, 40)


@dataclass(frozen=True)
class SowMessage(Message):
    """One publish to a SOW topic."""

    id: int = 0
    delta: bool = False
    lifetime_s: int | None = None

    @property
    def logged(self) -> bool:
        return self.topic == KEPT

    @property
    def fields(self) -> dict[str, Any]:
        """The message as an object."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    def frame(self, delta: bool) -> bytes:
        """The same frame each time: a message does not change when it is sent again."""
        header: dict[str, str | int] = {
            "cmd": "delta_publish" if self.delta else "publish",
            "topic": self.topic,
            "seq": self.sequence,
            "ack_type": "persisted",
        }
        if self.lifetime_s is not None:
            header["expiration"] = self.lifetime_s
        return encode_frame(header, self.body)


class SowWire(Wire):
    """A connection that sends the messages of the store alone."""

    def publish_some(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 12)):
            while self.next_sequence not in self.client.store:
                if self.next_sequence > self.client.last:
                    self.client.make_message(chance)
                else:
                    self.next_sequence += 1
            self.to_server += self.client.store[self.next_sequence].frame(False)
            self.next_sequence += 1


@dataclass
class SowClient(Client):
    """A publisher with keys of its own."""

    ids: tuple[int, ...] = ()
    pad_bytes: int = 100
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and id: the sequence of the last message."""

    def make_message(self, chance: random.Random) -> None:
        self.last += 1
        topic = chance.choice((KEPT, KEPT, PLAIN))
        id_ = chance.choice(self.ids)
        delta = chance.random() < 0.4
        fields: dict[str, Any] = {"id": id_, "v": self.last}
        if delta:
            fields |= {f"f{chance.randrange(3)}": self.last}
        if chance.random() < 0.6:
            fields["pad"] = "x" * chance.randrange(1, self.pad_bytes)
        # Values of the topic that no log has stay for ever, so that none may be missing.
        lifetime_s = chance.choice(LIFETIMES_S) if topic == KEPT else None
        body = json.dumps(fields).encode()
        self.store[self.last] = SowMessage(topic, body, self.last, id_, delta, lifetime_s)
        self.newest[topic, id_] = self.last


class SowTransport(Transport):
    """A worker that knows SOW topics, and passes deletions on."""

    def __init__(
        self,
        runtime: Runtime,
        index: int,
        instance_name: str,
        chance: random.Random,
        rules: Callable[[str, str], SowRules | None] | None,
    ) -> None:
        super().__init__(runtime, index, instance_name, chance)
        self._topics = TopicTable(lambda topic, message_type: (topic == KEPT, False, None, None), None, rules)

    def delete(self, request: bytes) -> bool:
        """Let any client delete keys. False: none is connected, or the ring is full."""
        ready = [session for session in self.sessions.values() if session.ready]
        if not ready or self._control_waiting:
            return False
        session = ready[0]
        entry = self._topics.entry(KEPT, "json")
        if not entry.declared:
            names = (entry.raw_name, b"json")
            if not self._ring.push(control_record(names, KIND_DECLARE_TOPIC, topic=entry.number)):
                return False
            entry.mark_declared()
        parts = RecordParts(
            request,
            kind=KIND_SOW_DELETE,
            topic_id=entry.number,
            flags=FLAG_DERIVED_PUBLISHER,
            publisher_id=derived_publisher_id(session.wire.client.name, self._instance_name),
        )
        return self._ring.push(
            padded(replace(parts, position=ring_position(session.slot, session.serial)).to_bytes())
        )
