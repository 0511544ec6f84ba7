"""Steps about queues."""

from collections.abc import Mapping
from typing import Any, ClassVar

from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.publisher import PublishFailure
from amps.server.services.queue_clearing import ClearingFailure


class DeleteSow(Step):
    """Acknowledges what matches a filter in a queue, or in several, as a client's `sow_delete` does (D-35)."""

    module = "amps-action-do-delete-sow"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        queues = self.environment.queues
        if queues is None:
            raise StepFailure("there are no queues")
        try:
            await queues.clear(options["Topic"], options["MessageType"], options["Filter"])
        except (ClearingFailure, PublishFailure) as failure:
            raise StepFailure(str(failure)) from None
        return True


class _SwitchProxiedTransfer(Step):
    """Says whether messages of a queue are taken over whose owner is out of reach (queues.md §16.4)."""

    enabled: ClassVar[bool]

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        topic, message_type = options["Topic"], options["MessageType"]
        statistics = self.environment.queue_statistics
        for number, queue in enumerate(self.environment.config.queues):
            if statistics is not None and (queue.name, queue.message_type) == (topic, message_type):
                statistics.set_proxied_transfer(number, self.enabled)
                return True
        raise StepFailure(f"{topic[:100]!r} is no queue of message type {message_type[:100]}")


class EnableProxiedTransfer(_SwitchProxiedTransfer):
    """From now on."""

    module = "amps-action-do-enable-proxied-transfer"
    enabled = True


class DisableProxiedTransfer(_SwitchProxiedTransfer):
    """Not any more."""

    module = "amps-action-do-disable-proxied-transfer"
    enabled = False
