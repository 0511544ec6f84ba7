"""Steps for queues."""

from collections.abc import Mapping
from typing import Any

from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.publisher import PublishFailure
from amps.server.services.queue_clearing import ClearingFailure


class DeleteSow(Step):
    """Acknowledges messages of one or several queues that match a filter, like a client's `sow_delete` (D-35)."""

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
