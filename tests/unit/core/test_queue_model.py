"""The model of the queues gives the results of the examples, and random comparison with it finds mistakes."""

import hypothesis
import pytest

from tests.support.queue_model import QueueModel
from tests.support.queue_scenarios import SCENARIOS, Scenario
from tests.unit.core.broken_queue_models import BROKEN_MODELS, FOCUS
from tests.unit.core.queue_rules import check_queue_rules


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_model_gives_the_results_of_the_example(scenario: Scenario) -> None:
    scenario(QueueModel)


def test_the_model_keeps_the_laws_of_queues() -> None:
    """The model compared with itself cannot differ. The laws of `queue_rules` are independent of it."""
    check_queue_rules(QueueModel, hypothesis.settings(max_examples=60, stateful_step_count=40, deadline=None))


@pytest.mark.parametrize("broken", BROKEN_MODELS, ids=lambda model: model.__name__)
def test_random_comparison_finds_a_broken_rule(broken: type[QueueModel]) -> None:
    """The comparison finds each broken model, which tests the comparison itself.

    The examples are always the same for the same set of loaded modules, since hypothesis takes constants from those.
    Their number is large enough to find each mistake with any set.
    """
    settings = hypothesis.settings(
        max_examples=3000,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    with pytest.raises(AssertionError):
        check_queue_rules(broken, settings, focus=FOCUS.get(broken))


@pytest.mark.parametrize("broken", FOCUS, ids=lambda model: model.__name__)
def test_the_settings_of_a_broken_rule_suit_the_true_model(broken: type[QueueModel]) -> None:
    """Otherwise the settings, not the rule, would be what the comparison finds."""
    settings = hypothesis.settings(max_examples=5, stateful_step_count=40, deadline=None)
    check_queue_rules(QueueModel, settings, focus=FOCUS[broken])
