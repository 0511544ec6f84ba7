"""The base class of programs that take part in a scenario."""

from abc import ABC, abstractmethod


class Peer(ABC):
    """The program in one row of a table: a server, a library, or this server in one configuration."""

    name: str
    title: str
    """Its name in the report."""

    @abstractmethod
    def version(self) -> str:
        """Version of the program, for the report. Raises PeerError if it is not installed."""

    def absence(self) -> str:
        """The feature that this version of the project lacks and the peer needs, as a sentence; empty: none."""
        return ""
