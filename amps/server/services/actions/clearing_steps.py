"""Steps that remove messages of queues and records of SOW topics."""

from collections.abc import Mapping
from typing import Any

from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.publisher import PublishFailure
from amps.server.services.queue_clearing import ClearingFailure


class DeleteSow(Step):
    """Deletes records of SOW topics, and acknowledges messages of queues, that match a filter, like a client's
    `sow_delete` (sow.md §22; queues.md D-35).
    """

    module = "amps-action-do-delete-sow"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        topic, message_type = options["Topic"], options["MessageType"]
        known = [part for part in (self.environment.states, self.environment.queues) if part is not None]
        try:
            concerned = [part for part in known if part.concerns(topic, message_type)]
            if not concerned:
                raise StepFailure(
                    f"{topic[:100]!r} is neither a SOW topic nor a queue of message type {message_type[:100]}"
                )
            for part in concerned:
                await part.clear(topic, message_type, options["Filter"])
        except (ClearingFailure, PublishFailure) as failure:
            raise StepFailure(str(failure)) from None
        return True
