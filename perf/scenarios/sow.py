"""What the scenarios about the state of the world share: one run of a peer in an empty directory, and checks."""

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from perf.measurement import Measurement, Settings
from perf.orders.lines import OrderLines, build
from perf.peers.process import in_own_process
from perf.peers.state import State, StatePeer
from perf.pump import PeerError
from perf.scenarios.base import Scenario
from perf.state_load import FIRST_VERSION, Numbers

SAMPLES = 100


class SowScenario(Scenario[StatePeer]):
    """One question to programs that keep states."""

    def measure(self, peer: StatePeer, settings: Settings, base: Path) -> Measurement:
        """Libraries are embedded in a process of their own, which measures them."""
        with empty_directory(peer, base) as directory:
            if peer.is_embedded:
                return in_own_process(self.measure_in, peer, settings, directory)
            return self.measure_in(peer, settings, directory)

    def measure_in(self, peer: StatePeer, settings: Settings, directory: Path) -> Measurement:
        with peer.opened(directory) as state:
            return self.measure_state(state, settings)

    @abstractmethod
    def measure_state(self, state: State, settings: Settings) -> Measurement:
        """One run against an empty state."""


class OrdersScenario(SowScenario):
    """One question about orders, which all runs share."""

    default_messages = 1_000_000
    orders: OrderLines

    @contextmanager
    def prepared(self, peers: object, settings: Settings, base: Path) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="amps-perf-orders-", dir=base) as directory:
            self.orders = build(Path(directory), settings.messages or self.default_messages)
            yield


@contextmanager
def empty_directory(peer: StatePeer, base: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=f"amps-perf-{peer.name}-", dir=base))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def check_count(state: State, expected: int) -> None:
    """Raises PeerError if there are more or fewer records."""
    found = state.count()
    if found != expected:
        raise PeerError(f"{found:,} records are stored instead of {expected:,}")


def check_values(state: State, numbers: Numbers, field: str, version: int) -> None:
    """Raises PeerError if some of these records, of all of them a sample, are not of this version."""
    for number in numbers[:: max(1, len(numbers) // SAMPLES)].tolist():
        text = state.value(number)
        value = None if text is None else orjson.loads(text)
        if value is None or value[field] != FIRST_VERSION + version:
            raise PeerError(f"record {number} is {text!r}, and not of version {version}")
