"""The base class of scenarios: a question, its peers, the measurement of one run of a peer, and a table."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.base import Peer

P = TypeVar("P", bound=Peer)


class Scenario(ABC, Generic[P]):
    """One question."""

    name: ClassVar[str]
    question: ClassVar[str]
    peers: Sequence[P]
    """The peers, this server first."""

    @contextmanager
    def prepared(self, peers: Sequence[P], settings: Settings, base: Path) -> Iterator[None]:
        """A context in which the data that all repetitions share exists; `base` is a directory for data."""
        yield

    @abstractmethod
    def measure(self, peer: P, settings: Settings, base: Path) -> Measurement:
        """One repetition of one peer."""

    @abstractmethod
    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        """The lines of a Markdown table, title first."""
