"""Random histories of the specification's model, and proof that they notice missing precautions.

`python -m tests.simulation --group-model` runs more of them.
"""

import pytest

from tests.simulation.broken_groups import BROKEN, BROKEN_WITH_QUEUES
from tests.simulation.group_flows import Group
from tests.simulation.group_plans import Plan, run_plan
from tests.simulation.group_queue_plans import QueuePlan

SEEDS = 160
QUEUE_SEEDS = 60
BATCHES = 4

HINTS = {
    "RecordsLeaveUndurable": 178,
    "UndurableResume": 774,
    "UndurableAcknowledgements": 15,
    "NoExceptions": 13,
    "SameEpochAfterWipe": 82,
    "PathsByNameAlone": 82,
    "ResumeAcknowledges": 108,
    "FirstArrivalsWaitForNobody": 343,
    "DuplicatesAreLogged": 2,
    "LostOnTheWay": 1,
}
QUEUE_HINTS = {"RecordsLeaveUndurable": 46, "PathsAreLost": 17}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_group_model_seeds(batch: int) -> None:
    """replication.md §§7, 8, 10-12, 24.5-24.7: whatever the order of steps and faults, the promises hold."""
    plans = [run_plan(seed) for seed in range(batch, SEEDS, BATCHES)]
    assert sum(plan.deaths for plan in plans) > len(plans), "so few deaths prove nothing"
    assert sum(publisher.acked for plan in plans for publisher in plan.publishers.values()) > 10 * len(plans)
    assert {plan.topology.name for plan in plans} == {"pair", "chain", "triangle", "star", "sites"}
    assert any(subscriber.repeats for plan in plans for subscriber in plan.subscribers)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_group_model_queue_seeds(batch: int) -> None:
    """replication.md §14, §24.8: one owner, no delivery after an acknowledgement, no lease is left over."""
    plans = [run_plan(seed, plan_type=QueuePlan) for seed in range(batch, QUEUE_SEEDS, BATCHES)]
    queues = [plan.queues for plan in plans if isinstance(plan, QueuePlan)]
    assert sum(len(queue.leases) for queue in queues) > 20 * len(queues)
    assert any(
        found.ownership
        for queue in queues
        for host in queue.hosts.values()
        for found in host.waiting.values()
    ) or any(record.to for plan in plans for one in plan.group.instances.values() for record in one.log)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_group_model_notices(broken: type[Group]) -> None:
    """Each precaution is needed: without it, some seed breaks a promise. The hint is a seed that has noticed it."""
    _must_fail(broken, Plan, HINTS[broken.__name__])


@pytest.mark.parametrize("broken", BROKEN_WITH_QUEUES, ids=lambda broken: broken.__name__)
def test_group_model_with_queues_notices(broken: type[Group]) -> None:
    _must_fail(broken, QueuePlan, QUEUE_HINTS[broken.__name__])


def _must_fail(broken: type[Group], plan_type: type[Plan], hint: int) -> None:
    seeds = dict.fromkeys((hint, *range(1000)))
    for seed in seeds:
        try:
            run_plan(seed, group_type=broken, plan_type=plan_type)
        except AssertionError:
            return
    raise AssertionError(f"{len(seeds)} seeds did not notice")


def test_group_model_a_seed_replays_exactly() -> None:
    first, second = run_plan(7), run_plan(7)
    assert first.history == second.history
    assert first.promises() == second.promises()
    assert first.promises()
