"""The questions the suite answers, by name.

A scenario is a function from a started peer and the settings to a `Measurement`; lower is better where
`unit` is a duration, higher where it is a rate.
"""

from collections.abc import Callable
from dataclasses import dataclass

from perf.peers.base import Peer
from perf.scenarios import live_latency, publish_persist, replay
from perf.scenarios.common import Measurement, Settings


@dataclass(frozen=True)
class Scenario:
    name: str
    question: str
    measure: Callable[[Peer, Settings], Measurement]


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "publish-persist", "Publishes per second until acknowledged as stored", publish_persist.measure
        ),
        Scenario("live-latency", "Time from publisher to subscriber at a fixed rate", live_latency.measure),
        Scenario("replay", "Stored messages per second to one reader, from the first one", replay.measure),
    )
}

__all__ = ["SCENARIOS", "Measurement", "Scenario", "Settings"]
