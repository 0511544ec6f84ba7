"""Comparison of the messages of a replay with the published messages.

Both sides have a running checksum per topic over all bodies in order: equal checksums mean the same messages,
the same number of them, in the same order. If they are not equal, the `id` of each message identifies missing and
repeated messages. It also shows whether the order across topics is the order of publishing.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

NAMED_AT_MOST = 10


class AcknowledgedLost(RuntimeError):
    """A server lacks a message that it had acknowledged."""


@dataclass
class TopicSum:
    """Count and checksum of one topic."""

    count: int = 0
    checksum: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=8))

    def add(self, body: bytes) -> None:
        self.count += 1
        self.checksum.update(len(body).to_bytes(4, "little") + body)


class Ledger:
    """The messages of one side, in order."""

    def __init__(self, messages: Iterable[tuple[str, bytes]] = ()) -> None:
        self.topics: dict[str, TopicSum] = {}
        self.ids: list[int] = []
        for topic, body in messages:
            self.add(topic, body)

    def add(self, topic: str, body: bytes) -> None:
        self.topics.setdefault(topic, TopicSum()).add(body)
        self.ids.append(orjson.loads(body)["id"])


@dataclass(frozen=True)
class TopicProof:
    topic: str
    published: int
    replayed: int
    checksum_published: str
    checksum_replayed: str

    @property
    def holds(self) -> bool:
        return self.published == self.replayed and self.checksum_published == self.checksum_replayed


@dataclass(frozen=True)
class Proof:
    """The comparison, topic by topic and message by message."""

    topics: list[TopicProof]
    missing: list[int]
    doubled: list[int]
    in_order: bool

    @property
    def holds(self) -> bool:
        return (
            not self.missing
            and not self.doubled
            and self.in_order
            and all(topic.holds for topic in self.topics)
        )

    def complaints(self) -> list[str]:
        """Return descriptions of all differences; an empty list if there are none."""
        said = []
        for what, ids in (("missing", self.missing), ("delivered twice", self.doubled)):
            if ids:
                named = ", ".join(str(number) for number in ids[:NAMED_AT_MOST])
                said.append(f"{len(ids)} messages {what}: {named}{' …' if len(ids) > NAMED_AT_MOST else ''}")
        if not self.in_order:
            said.append("the replay is not in publishing order")
        said += [
            f"{topic.topic}: {topic.published} published, {topic.replayed} replayed, checksums "
            f"{topic.checksum_published} and {topic.checksum_replayed}"
            for topic in self.topics
            if not topic.holds
        ]
        return said


def compare(source: Ledger, replayed: Ledger) -> Proof:
    """Compare a replay with the source."""
    empty = TopicSum()
    topics = []
    for topic in sorted(source.topics.keys() | replayed.topics.keys()):
        published, returned = source.topics.get(topic, empty), replayed.topics.get(topic, empty)
        topics.append(
            TopicProof(
                topic,
                published.count,
                returned.count,
                published.checksum.hexdigest(),
                returned.checksum.hexdigest(),
            )
        )
    times = Counter(replayed.ids)
    expected = set(source.ids)
    return Proof(
        topics,
        missing=sorted(expected - times.keys()),
        doubled=sorted(number for number, seen in times.items() if seen > 1),
        in_order=all(earlier < later for earlier, later in zip(replayed.ids, replayed.ids[1:], strict=False)),
    )
