"""Examples of queues at work, one function each: what queues.md §24 says about the engine alone, and more rules.

`SCENARIOS` run on the model and on the engine alike: each takes the factory that makes its subject. They say in plain
words what must come out, so they also tell whether the model is right; random tests only tell whether both are alike.
"""

from tests.support.queue_scenarios import acknowledging, barriers, delivering, leaving, subscribing
from tests.support.queue_scenarios.harness import MakeSubject, Scenario

SCENARIOS: list[Scenario] = [
    *subscribing.SCENARIOS,
    *acknowledging.SCENARIOS,
    *delivering.SCENARIOS,
    *leaving.SCENARIOS,
    *barriers.SCENARIOS,
]

__all__ = ["SCENARIOS", "MakeSubject", "Scenario"]
