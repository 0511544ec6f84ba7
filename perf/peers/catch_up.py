"""Groups of two servers of which the copy can be stopped, and catch up later with what the leader has got meanwhile.

Three moments of a catch-up are told apart: the copy is started; it has everything that the leader had then; it has that
on its disk, so that it would not be lost with the process. A server may reach the last two at once.
"""

import time
from abc import abstractmethod

from perf.peers.groups import ServerGroup

CATCH_UP_LIMIT_S = 600.0
POLL_S = 0.02
PAYLOAD_BYTES = 200


class CatchUpGroup(ServerGroup):
    """The first member is the leader, the second one is the copy."""

    payload_bytes = PAYLOAD_BYTES
    copies_limit_s = CATCH_UP_LIMIT_S

    @abstractmethod
    def stop_copy(self) -> None:
        """End the process of the copy in order. Its data stay."""

    @abstractmethod
    def mark(self) -> None:
        """Note where the leader's data end now: what the copy has to reach. It is stopped, and nothing is published."""

    @abstractmethod
    def start_copy(self) -> None:
        """Start the copy with its data. It need not answer yet."""

    @abstractmethod
    def await_everything(self) -> None:
        """Wait until the copy has everything up to the mark. Raises PeerError after CATCH_UP_LIMIT_S."""

    @abstractmethod
    def await_stored(self) -> None:
        """Wait until the copy has that on its disk, too. Raises PeerError after CATCH_UP_LIMIT_S."""

    @abstractmethod
    def check_way(self) -> None:
        """Raises PeerError if the copy did not catch up in the way that the peer is about."""


def pause() -> None:
    """Wait between two questions to a copy, so that questions do not slow it down."""
    time.sleep(POLL_S)
