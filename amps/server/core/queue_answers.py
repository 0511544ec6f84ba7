"""The core's answers about its queues: who takes messages from them, and what waits (queues.md §18).

Asked by the services process, as about journals (journal_retention.py): `[id, "queue", number]` or
`[id, "queue subscriptions", so many to skip]`; answered with rows of `amps._core.queues.manager`.
"""

import msgpack

from amps._core.queues.manager import describe_queue, describe_subscriptions
from amps._core.sequencer.sequencer import Sequencer
from amps.server.request_answers import packed_rows

QUEUE = "queue"
SUBSCRIPTIONS = "queue subscriptions"
NUMBER_MAX = 2**32


def answer_about_queues(request: bytes, sequencer: Sequencer) -> list[bytes] | None:
    """Datagrams to send; None: nothing about queues is asked, or what is asked cannot be understood."""
    try:
        asked = msgpack.unpackb(request)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    if not isinstance(asked, list) or len(asked) != 3 or asked[1] not in (QUEUE, SUBSCRIPTIONS):
        return None
    identity, verb, number = asked
    adapter = sequencer.adapter
    known = 0 if adapter is None else len(adapter.manager.queues) if verb == QUEUE else NUMBER_MAX
    if adapter is None or isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < known:
        return [msgpack.packb([identity, "error", f"there is no {verb} of the number {number!r}"])]
    describe = describe_queue if verb == QUEUE else describe_subscriptions
    return packed_rows(identity, describe(adapter.manager, number, sequencer.names))
