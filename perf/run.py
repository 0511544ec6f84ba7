"""Runs a scenario: repetitions interleaved over the peers (A B C A B C …), each in a fresh server and
directory.

Interleaving spreads whatever else the machine does over all peers. Dirty pages of one run are written out
before the next begins, so that no peer pays for another's unsynced data.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perf.machine import description
from perf.peers import Peer
from perf.scenarios import Measurement, Scenario, Settings


@dataclass
class PeerResult:
    """All repetitions of one peer."""

    peer: type[Peer]
    version: str
    runs: list[Measurement] = field(default_factory=list)

    def median(self, value: str) -> float:
        return statistics.median(run.values[value] for run in self.runs)


@dataclass
class ScenarioResult:
    scenario: Scenario
    settings: Settings
    machine: dict[str, object]
    peers: list[PeerResult]


def run_scenario(
    scenario: Scenario,
    peers: list[type[Peer]],
    settings: Settings,
    directory: Path | None,
    say: Callable[[str], None],
) -> ScenarioResult:
    """Measure; `say` gets a line per repetition."""
    base = directory or Path(tempfile.gettempdir())
    base.mkdir(parents=True, exist_ok=True)
    result = ScenarioResult(
        scenario, settings, description(base), [PeerResult(peer, peer.version()) for peer in peers]
    )
    for repetition in range(1, settings.repetitions + 1):
        for peer_result in result.peers:
            measurement = measure_once(scenario, peer_result.peer, settings, base)
            peer_result.runs.append(measurement)
            figures = "  ".join(f"{name} {value:,.10g}" for name, value in measurement.values.items())
            say(f"{repetition}/{settings.repetitions}  {peer_result.peer.name:<24} {figures}")
    return result


def measure_once(scenario: Scenario, peer: type[Peer], settings: Settings, base: Path) -> Measurement:
    directory = Path(tempfile.mkdtemp(prefix=f"amps-perf-{peer.name}-", dir=base))
    try:
        with peer(directory) as server:
            return scenario.measure(server, settings)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.sync()
