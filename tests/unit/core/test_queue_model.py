"""The model of the queues: it does what the examples say."""

import pytest

from tests.support.queue_model import QueueModel
from tests.support.queue_scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_model_does_what_the_example_says(scenario: Scenario) -> None:
    scenario(QueueModel)
