"""Runs a scenario: repetitions interleaved over the peers (A B C A B C …).

Interleaving spreads other load of the machine over all peers.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.machine import description
from perf.measurement import PeerResult, Settings
from perf.peers.base import Peer
from perf.scenarios import Scenario


@dataclass
class ScenarioResult:
    scenario: Scenario[Any]
    settings: Settings
    machine: dict[str, object]
    peers: list[PeerResult]


def run_scenario(
    scenario: Scenario[Any],
    peers: Sequence[Peer],
    settings: Settings,
    directory: Path | None,
    say: Callable[[str], None],
) -> ScenarioResult:
    """Measure; `say` gets a line per repetition."""
    present = []
    for peer in peers:
        if reason := peer.absence():
            say(f"left out: {peer.name}, because {reason}")
        else:
            present.append(peer)
    base = directory or Path(tempfile.gettempdir())
    base.mkdir(parents=True, exist_ok=True)
    result = ScenarioResult(
        scenario, settings, description(base), [PeerResult(peer, peer.version()) for peer in present]
    )
    with scenario.prepared(present, settings, base):
        for repetition in range(1, settings.repetitions + 1):
            for peer_result in result.peers:
                measurement = scenario.measure(peer_result.peer, settings, base)
                peer_result.runs.append(measurement)
                figures = "  ".join(f"{name} {value:,.10g}" for name, value in measurement.values.items())
                say(f"{repetition}/{settings.repetitions}  {peer_result.peer.name:<24} {figures}")
                for note in measurement.notes:
                    say(f"     {note}")
    return result
