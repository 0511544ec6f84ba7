"""The core decides about transactions as the model of the queues does, and the comparison finds mistakes."""

import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.support.queue_model import QueueModel
from tests.support.transaction_workers import CoreWorkers, ModelWorkers, Workers
from tests.unit.core.broken_queue_models import BROKEN_TRANSACTION_MODELS
from tests.unit.core.transaction_rules import check_transactions


def test_the_core_decides_as_the_model(tmp_path: Path) -> None:
    """queue_guarantees.md §4: fence, repetitions, recorded refusals, and both or neither, also after restarts."""

    def make() -> Workers:
        return CoreWorkers(Path(tempfile.mkdtemp(dir=tmp_path)))

    check_transactions(make, hypothesis.settings(max_examples=40, stateful_step_count=40, deadline=None))


@pytest.mark.parametrize("broken", BROKEN_TRANSACTION_MODELS, ids=lambda model: model.__name__)
def test_random_comparison_finds_a_broken_rule(broken: type[QueueModel]) -> None:
    """As for the other rules of queues (test_queue_model.py)."""
    settings = hypothesis.settings(
        max_examples=2000,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    with pytest.raises(AssertionError):
        check_transactions(lambda: ModelWorkers(broken), settings)
