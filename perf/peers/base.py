"""Who takes part in a scenario."""

from abc import ABC, abstractmethod


class Peer(ABC):
    """What is measured in one place of a table: a server, a library, or this server in one way of using it."""

    name: str
    title: str
    """As the report calls it."""

    @abstractmethod
    def version(self) -> str:
        """Version of the program, for the report. Raises PeerError if it is not installed."""
