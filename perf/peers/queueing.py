"""What a server offers that takes part in the scenarios about queues."""

from abc import abstractmethod
from collections.abc import Sequence

from perf.consuming import Consumer
from perf.peers.server import ServerPeer


class QueuePeer(ServerPeer):
    """A server with one queue, into which the lanes of `publish_lanes` publish."""

    fill_window = 0
    """The best `window` for publishing while nobody consumes, if that is another."""
    pace: int
    """Messages per second, roughly, from publisher to acknowledgement. Only decides how much load is built."""

    @abstractmethod
    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        """Consuming connections, logged on, that are about to take so many messages together."""

    @abstractmethod
    def left(self) -> int:
        """Messages that are not acknowledged, also those that a consumer had. No consumer is connected."""
