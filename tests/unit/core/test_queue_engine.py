"""The engine of the queues does what the examples say, and what the model does."""

import pytest

from tests.support.queue_engine import QueueEngine
from tests.support.queue_scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_engine_does_what_the_example_says(scenario: Scenario) -> None:
    scenario(QueueEngine)
