"""The base class of servers that take part in the scenarios about queues."""

from abc import abstractmethod
from collections.abc import Sequence

from perf.consuming import Consumer
from perf.peers.server import ServerPeer


class QueuePeer(ServerPeer):
    """A server with one queue, into which the lanes of `publish_lanes` publish."""

    fill_window = 0
    """The best `window` for publishing without consumers, if it differs; 0: the same."""
    pace: int
    """Approximate messages per second from publisher to acknowledgement. Only sets the amount of load to build."""

    @abstractmethod
    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        """Consuming connections, logged on, that will receive `messages` messages together."""

    @abstractmethod
    def left(self) -> int:
        """Number of unacknowledged messages, also those delivered to a consumer. No consumer is connected."""
