"""The core's answers about its queues: their subscriptions, and their waiting messages (queues.md §18).

The services process sends the requests, as for journals (journal_retention.py): `[id, "queue", number]` or
`[id, "queue subscriptions", number to skip]`. The answers are rows of `amps._core.queues.manager`.
`[id, "proxied transfer", number, 0 or 1]` switches the proxied transfer of a queue (replication.md §14.4). The setting
lasts as long as the core.
"""

import msgpack

from amps._core.queues.manager import describe_queue, describe_subscriptions
from amps._core.sequencer.sequencer import Sequencer
from amps.server.request_answers import packed_rows

QUEUE = "queue"
SUBSCRIPTIONS = "queue subscriptions"
PROXIED = "proxied transfer"
NUMBER_MAX = 2**32


def answer_about_queues(request: bytes, sequencer: Sequencer) -> list[bytes] | None:
    """Datagrams to send; None: the request is not about queues, or is malformed."""
    try:
        asked = msgpack.unpackb(request)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    if isinstance(asked, list) and len(asked) == 4 and asked[1] == PROXIED:
        return [msgpack.packb([asked[0], *_switch_proxied(asked[2], asked[3], sequencer)])]
    if not isinstance(asked, list) or len(asked) != 3 or asked[1] not in (QUEUE, SUBSCRIPTIONS):
        return None
    identity, verb, number = asked
    adapter = sequencer.adapter
    known = 0 if adapter is None else len(adapter.manager.queues) if verb == QUEUE else NUMBER_MAX
    if adapter is None or isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < known:
        return [msgpack.packb([identity, "error", f"there is no {verb} of the number {number!r}"])]
    describe = describe_queue if verb == QUEUE else describe_subscriptions
    return packed_rows(identity, describe(adapter.manager, number, sequencer.names))


def _switch_proxied(number: object, enabled: object, sequencer: Sequencer) -> tuple[object, ...]:
    """Switch the proxied transfer of a queue. Returns the answer without its identity."""
    adapter = sequencer.adapter
    if adapter is None or not isinstance(number, int) or not 0 <= number < len(adapter.manager.queues):
        return "error", f"there is no queue of the number {number!r}"
    if not adapter.manager.set_proxied(number, bool(enabled)) and enabled:
        return "error", "the queue is one of this instance alone: no other instance can own its messages"
    return "ok", []
