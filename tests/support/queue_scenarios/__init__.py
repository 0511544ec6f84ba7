"""Examples of queues at work, one function each: the part of queues.md §24 about the engine alone, and further rules.

`SCENARIOS` run on the model and on the engine alike: each takes the factory that makes its subject. They state the
expected results in full, so they also show whether the model is right; random tests only show whether both are alike.
"""

from tests.support.queue_scenarios import (
    acknowledging,
    barriers,
    delays,
    delivering,
    leaving,
    ordering,
    subscribing,
)
from tests.support.queue_scenarios.harness import MakeSubject, Scenario

SCENARIOS: list[Scenario] = [
    *subscribing.SCENARIOS,
    *acknowledging.SCENARIOS,
    *delivering.SCENARIOS,
    *leaving.SCENARIOS,
    *barriers.SCENARIOS,
    *delays.SCENARIOS,
    *ordering.SCENARIOS,
]

__all__ = ["SCENARIOS", "MakeSubject", "Scenario"]
