"""Steps for replication (replication.md §8, §14.4): who is waited for, and taking over messages of a lost instance."""

from collections.abc import Mapping
from typing import Any

from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.core_requests import CoreRefused
from amps.server.services.requests import RequestRefused


class _ByAge(Step):
    """Has the replication process change destinations by the age of what they have not acknowledged."""

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        replication = self.environment.replication
        if replication is None:
            raise StepFailure("there is no replication; add Replication, or remove this step")
        if self.environment.uptime_s() < options["GracePeriod"]:
            return True
        try:
            await self._change(options["Age"])
        except RequestRefused as refusal:
            raise StepFailure(str(refusal)) from None
        return True

    async def _change(self, age_s: float) -> None:
        raise NotImplementedError


class DowngradeReplication(_ByAge):
    """Stops waiting for sync destinations whose oldest unacknowledged message is older than `Age`."""

    module = "amps-action-do-downgrade-replication"

    async def _change(self, age_s: float) -> None:
        assert self.environment.replication is not None
        await self.environment.replication.downgrade_older(age_s)


class UpgradeReplication(_ByAge):
    """Waits again for downgraded destinations that are connected and whose oldest unacknowledged message is younger."""

    module = "amps-action-do-upgrade-replication"

    async def _change(self, age_s: float) -> None:
        assert self.environment.replication is not None
        await self.environment.replication.upgrade_younger(age_s)


class _ProxiedTransfer(Step):
    """Switches whether this instance takes over messages of a queue whose owner cannot be reached."""

    enabled: bool

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        topic, message_type = options["Topic"], options["MessageType"]
        shared = {
            (queue.name, queue.message_type): number
            for number, queue in enumerate(self.environment.config.queues)
            if queue.kind != "LocalQueue"
        }
        if (topic, message_type) not in shared:
            raise StepFailure(
                f"{topic[:100]!r} of the message type {message_type} is no Queue or GroupLocalQueue; name one"
            )
        try:
            await self.environment.core.switch_proxied_transfer(shared[topic, message_type], self.enabled)
        except CoreRefused as refusal:
            raise StepFailure(str(refusal)) from None
        return True


class EnableProxiedTransfer(_ProxiedTransfer):
    """Takes over messages whose owner cannot be reached, when a consumer here can have them."""

    module = "amps-action-do-enable-proxied-transfer"
    enabled = True


class DisableProxiedTransfer(_ProxiedTransfer):
    """Takes over no more messages."""

    module = "amps-action-do-disable-proxied-transfer"
    enabled = False
