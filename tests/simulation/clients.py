"""Publishers as clients with a publish store: they survive every death of the server and remember every promise.

A promise is a persisted acknowledgement, the last sequence in a logon acknowledgement, the end of a flush, or a
delivery to a subscriber that asked for durable messages. The checks compare the log with the promises.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from amps._core.wire.framing import encode_frame
from amps.server.transport.failures import TX_STORE_FAILED

TOPICS = ("orders", "quotes", "news/€", "plain")
UNLOGGED = "plain"
_NOT_BEFORE = re.compile(rb'"not_before": ?(\d+)')
"""The time until which a message is delayed, in its body; not in the bodies of ordinary publishers."""
LOGGED_PATTERN = "^(orders|quotes|news/)"


@dataclass(frozen=True)
class Message:
    """One publish. A `sequence` of 0 means that it has no number."""

    topic: str
    body: bytes
    sequence: int

    @property
    def logged(self) -> bool:
        return self.topic != UNLOGGED

    def frame(self, delta: bool) -> bytes:
        fields: dict[str, str | int] = {
            "cmd": "delta_publish" if delta else "publish",
            "topic": self.topic,
        }
        if self.sequence:
            fields |= {"seq": self.sequence, "ack_type": "persisted"}
        if len(self.body) % 3 == 0:
            fields["correlation_id"] = "c" * (len(self.body) % 20)
        if len(self.body) % 5 == 0:
            fields["expiration"] = len(self.body)
        not_before = _NOT_BEFORE.search(self.body)
        if not_before is not None:
            fields["not_before"] = int(not_before[1])
        return encode_frame(fields, self.body)


class Wire:
    """The client's end of one connection: it holds the bytes on their way to the server. Either side can close it."""

    def __init__(self, client: "Client", user: str) -> None:
        self.client = client
        self.user = user
        self.to_server = bytearray()
        self.closed = False
        self.ready = False
        self.next_sequence = 0
        self.unnumbered: list[bytes] = []  # bodies sent without a number since the last flush that ended
        # The answer may come late, after another connection of this name has taken over and gone on.
        self.owed_at_logon = max((message.sequence for message in client.owed()), default=0)

    # Answers of the server

    def logged_on(self, last_sequence: int) -> None:
        self.ready = True
        client = self.client
        assert last_sequence >= self.owed_at_logon, (
            f"the logon of {client.name} says {last_sequence}; {self.owed_at_logon} was acknowledged and is recorded"
        )
        client.promise(last_sequence)
        self.next_sequence = max(last_sequence, self.client.acked) + 1

    def persisted(self, sequence: int, reason: str | None) -> None:
        if reason is None:
            self.client.promise(sequence)
        else:
            assert reason == TX_STORE_FAILED, f"a publish of {self.client.name} failed: {reason}"
            self.client.give_up(sequence)

    def flushed(self, bodies: list[bytes]) -> None:
        self.client.promised_unnumbered.update(dict.fromkeys(bodies))

    # Actions of the client

    def publish_some(self, chance: random.Random) -> None:
        """Send stored messages from this connection's next sequence on. Make new messages at the end of the store."""
        client = self.client
        for _ in range(chance.randint(1, 12)):
            if chance.random() < 0.15:
                body = client.new_body(chance)
                client.sent_unnumbered[body] = None
                topic = chance.choice(TOPICS[:3])
                self.unnumbered.append(body)
                self.to_server += Message(topic, body, 0).frame(False)
                continue
            while self.next_sequence not in client.store:
                if self.next_sequence > client.last:
                    client.make_message(chance)
                else:
                    self.next_sequence += 1  # a deliberate gap
            self.to_server += client.store[self.next_sequence].frame(chance.random() < 0.1)
            self.next_sequence += 1

    def publish_again(self, chance: random.Random) -> None:
        """Send a message a second time: the server must drop it."""
        known = [sequence for sequence in self.client.store if sequence < self.next_sequence]
        if known:
            self.to_server += self.client.store[chance.choice(known[-20:])].frame(False)


@dataclass
class Client:
    """One publisher: its name, its store, and the promises it has received."""

    name: str
    user: str
    sizes: Callable[[random.Random], int]
    store: dict[int, Message] = field(
        default_factory=dict
    )  # every numbered message ever made and not given up
    last: int = 0
    acked: int = 0
    given_up: set[int] = field(default_factory=set)
    sent_unnumbered: dict[bytes, None] = field(default_factory=dict)
    promised_unnumbered: dict[bytes, None] = field(default_factory=dict)
    wire: Wire | None = None
    bodies: int = 0
    strangers: int = 0  # connections of other users that tried the name

    def new_body(self, chance: random.Random) -> bytes:
        self.bodies += 1
        text = b"%s:%d:" % (self.name.encode(), self.bodies)
        return text + chance.randbytes(self.sizes(chance))

    def make_message(self, chance: random.Random) -> None:
        self.last += 1 if chance.random() < 0.9 else chance.randint(2, 50)
        topic = chance.choice(TOPICS)
        self.store[self.last] = Message(topic, self.new_body(chance), self.last)

    def promise(self, sequence: int) -> None:
        assert sequence <= self.last, f"{self.name} was acknowledged {sequence}, it only made {self.last}"
        self.acked = max(self.acked, sequence)

    def give_up(self, sequence: int) -> None:
        """The server has refused to store a message. It has no effect on a message that was acknowledged before."""
        if sequence > self.acked:
            self.given_up.add(sequence)
            self.store.pop(sequence, None)

    @property
    def last_kept(self) -> int:
        """The last message that was not given up."""
        return max(self.store, default=0)

    def owed(self) -> list[Message]:
        """Recorded messages that must be in the log."""
        return [m for s, m in self.store.items() if m.logged and s <= self.acked]
