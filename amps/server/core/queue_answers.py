"""The core's answers about its queues: their subscriptions, and their waiting messages (queues.md §18).

The services process sends the requests, as for journals (journal_retention.py): `[id, "queue", number]` or
`[id, "queue subscriptions", number to skip]`. The answers are rows of `amps._core.queues.manager`.
"""

import msgpack

from amps._core.queues.manager import describe_queue, describe_subscriptions
from amps._core.sequencer.sequencer import Sequencer
from amps.server.request_answers import packed_rows

QUEUE = "queue"
SUBSCRIPTIONS = "queue subscriptions"
NUMBER_MAX = 2**32


def answer_about_queues(request: bytes, sequencer: Sequencer) -> list[bytes] | None:
    """Datagrams to send; None: the request is not about queues, or is malformed."""
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
