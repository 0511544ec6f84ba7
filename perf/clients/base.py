"""The base classes of client libraries under measurement, and the sizes that all of them share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

from perf.load import build
from perf.peers.base import Peer
from perf.peers.server import ServerPeer
from perf.pump import PeerError

BODY_BYTES = 100
BACKLOG = 1000
"""Messages of a queue that a consumer may hold unacknowledged."""
ACK_BATCH = 500
"""Messages of a queue that are acknowledged together, if the protocol can do that."""
WAIT_S = 120.0
"""A session gives up if the messages have not arrived by then."""


class Case(Enum):
    """What an application does with its client library. The value is the last word of the scenario's name."""

    PUBLISH = "publish"
    LIVE = "live"
    REPLAY = "replay"
    QUEUE = "queue"


class Session(ABC):
    """A connected client, in its process. Received bodies are returned in the order of arrival."""

    @abstractmethod
    def publish(self, bodies: Sequence[bytes]) -> None:
        """Publish all, and return when the server has confirmed that all are stored."""

    @abstractmethod
    def listen(self, count: int) -> None:
        """Subscribe to the messages that are published from now on; return when the server has accepted that."""

    @abstractmethod
    def heard(self) -> list[bytes]:
        """Wait for the `count` messages of `listen`; each is given to a handler that reads its body and its topic."""

    @abstractmethod
    def replay(self, count: int) -> list[bytes]:
        """Read the stored messages from the first one, as `heard` does."""

    @abstractmethod
    def work(self, count: int) -> list[bytes]:
        """Consume `count` messages of the queue; return when the server has confirmed their acknowledgements."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""


Servers = Mapping[Case, type[ServerPeer]]
Ways = Mapping[Case, str]


class ClientPeer(Peer):
    """One client library in one way of use. It is pickled for its process."""

    servers: ClassVar[Servers]
    """The server of each case in which the library takes part."""
    package: str
    """The distribution package of the library."""
    ways: ClassVar[Ways]
    """The calls of the library that the case uses, for the report."""
    pace: int
    """Approximate messages per second. Only sets the number of messages."""

    @abstractmethod
    def session(self, port: int, case: Case) -> Session:
        """Connect to the server on a port of this host. Called in the process."""

    def version(self) -> str:
        return installed(self.package)


def installed(package: str) -> str:
    """Name and version of a distribution package. Raises PeerError if it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise PeerError(f"{package} is not installed: pip install {package}") from None


def bodies(count: int) -> list[bytes]:
    """The bodies of `count` messages, all different; the same that the load generator sends."""
    data = build(b"", b"", count, payload_bytes=BODY_BYTES).data
    return [bytes(data[at : at + BODY_BYTES]) for at in range(0, count * BODY_BYTES, BODY_BYTES)]


def check(received: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Raises PeerError unless all messages have arrived, once each, in order, with their content."""
    if len(received) != len(expected):
        raise PeerError(f"{len(received)} messages received instead of {len(expected)}")
    for number, (got, wanted) in enumerate(zip(received, expected, strict=True)):
        if got != wanted:
            raise PeerError(f"message {number} is {got!r} instead of {wanted!r}")


def overdue(received: Sequence[bytes], count: int) -> PeerError:
    """The error for messages that do not arrive."""
    return PeerError(f"only {len(received)} of {count} messages have arrived in {WAIT_S:g} s")


def wrong_topic(topic: object, wanted: object) -> PeerError:
    """The error for a message with another topic."""
    return PeerError(f"a message has the topic {topic!r} instead of {wanted!r}")
