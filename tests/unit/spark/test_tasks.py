"""Progress of Spark tasks on the driver, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from amps.spark.pipelines import tasks
from amps.spark.pipelines.job import Silent
from tests.support.server import wait_until


class Steps(Silent):
    """Adds up the steps."""

    total = 0

    def advance(self, steps: int = 1) -> None:
        self.total += steps


def session() -> Any:
    return SimpleNamespace(conf={"spark.driver.host": "127.0.0.1"})


@pytest.mark.timeout(60)
def test_a_stage_ends_with_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for further progress, which the thread may expect for a long time."""
    monkeypatch.setattr(tasks, "POLL_S", 1000.0)
    steps = Steps()
    with tasks.TaskCounts(session(), steps) as counts:
        with tasks.Teller(counts.address) as teller:
            teller.advance(3)
        wait_until(lambda: steps.total == 3, 30, lambda: f"progress: {steps.total}")
