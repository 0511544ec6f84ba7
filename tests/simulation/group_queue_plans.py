"""Random histories of a queue in a group; see `group_plans`.

No proxied use, no wiped instance and no downgrade: for those, the documented model permits two owners, or a second
delivery.
"""

from collections.abc import Callable, Sequence

from tests.simulation.group_checks import check_owners, check_queue_deliveries, check_queue_empty
from tests.simulation.group_flows import Group
from tests.simulation.group_model import PUBLISH, Instance
from tests.simulation.group_plans import Plan
from tests.simulation.group_queues import Queues


class QueuePlan(Plan):
    """A plan with a queue over the topic of all publishers."""

    def __init__(self, seed: int, group_type: Callable[[list[Instance]], Group] = Group) -> None:
        super().__init__(seed, group_type)
        chance = self.chance
        names = sorted(self.group.instances)
        self.queues = Queues(self.group, chance.choice([None, None, chance.choice(names)]))
        for number, name in enumerate(chance.sample(names, chance.randint(1, len(names)))):
            self.queues.add_consumer(f"c{number}", name, chance.choice([1, 3]))

    def _actions(self) -> Sequence[tuple[Callable[[], None], float]]:
        faults = (self._downgrade, self._upgrade, self._wipe, self._move_subscriber, self._run_subscriber)
        return [
            *(entry for entry in super()._actions() if entry[0] not in faults),
            (self._deliver, 30),
            (self._consume, 25),
            (self._request, 20),
            (self._grant, 20),
            (self._learn, 15),
            (self._give_back, 2),
        ]

    def _deliver(self) -> None:
        self.queues.deliver(self._instance().name)

    def _consume(self) -> None:
        self.queues.acknowledge(self.chance.choice(list(self.queues.consumers.values())))

    def _request(self) -> None:
        self.queues.request(self._instance().name)

    def _grant(self) -> None:
        self.queues.grant(lost=self.chance.random() < 0.1)

    def _learn(self) -> None:
        self.queues.settle_acknowledgements()

    def _give_back(self) -> None:
        self.queues.give_back(self.chance.choice(list(self.queues.consumers.values())))

    def _end(self, instance: Instance) -> None:
        super()._end(instance)
        self.queues.instance_ended(instance.name)

    def check(self) -> None:
        super().check()
        check_queue_deliveries(self.queues.leases, self.queues.twice_published())

    def settle(self) -> None:
        super().settle()
        check_owners(self.queues.owners(), self.queues.twice_published())
        for consumer in self.queues.consumers.values():
            self.queues.give_back(consumer)
        self.queues.drain()
        check_queue_deliveries(self.queues.leases, self.queues.twice_published())
        messages = [
            record.bookmark
            for instance in self.group.instances.values()
            for record in instance.log
            if record.kind == PUBLISH
        ]
        check_queue_empty(messages, self.queues.leases, self.queues.left())
