"""The engine of the queues gives the results of the examples and of the model."""

import hypothesis
import pytest

from tests.support.queue_engine import QueueEngine
from tests.support.queue_scenarios import SCENARIOS, Scenario
from tests.unit.core.queue_rules import check_queue_rules


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_engine_gives_the_results_of_the_example(scenario: Scenario) -> None:
    """queues.md §24, for rules about one engine; the names of the scenarios give the numbers."""
    scenario(QueueEngine)


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_engine_gives_the_results_of_the_model(has_keys: bool) -> None:
    """queues.md §19 and §20; queue_guarantees.md §3; on random inputs."""
    examples = max(1, hypothesis.settings.default.max_examples // 3)  # type: ignore[union-attr]
    check_queue_rules(
        QueueEngine,
        hypothesis.settings(max_examples=examples, stateful_step_count=30, deadline=None),
        has_keys,
    )
