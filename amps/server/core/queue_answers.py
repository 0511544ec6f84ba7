"""The core's answers about its queues: who takes messages from them, and what waits (queues.md §18).

Asked by the services process, as about journals (journal_keeper.py): `[id, "queue", number]` or
`[id, "queue subscriptions", so many to skip]`; answered with rows of `amps._core.queue_details`, in parts that a packet
socket takes.
"""

from collections.abc import Iterable
from typing import Any

import msgpack

from amps._core.queue_details import describe_queue, describe_subscriptions
from amps._core.sequencer import Sequencer

QUEUE = "queue"
SUBSCRIPTIONS = "queue subscriptions"
PART_BYTES = 60_000
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
    desk = sequencer.desk
    known = 0 if desk is None else len(desk.book.queues) if verb == QUEUE else NUMBER_MAX
    if desk is None or isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < known:
        return [msgpack.packb([identity, "error", f"there is no {verb} of the number {number!r}"])]
    describe = describe_queue if verb == QUEUE else describe_subscriptions
    return _answer(identity, describe(desk.book, number, sequencer.names))


def _answer(identity: object, rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Datagrams with as many rows as fit; at least one."""
    packer = msgpack.Packer()
    parts: list[list[bytes]] = [[]]
    size = 0
    for row in rows:
        packed = packer.pack(row)
        size += len(packed)
        if size > PART_BYTES and parts[-1]:
            parts.append([])
            size = len(packed)
        parts[-1].append(packed)
    kinds = ["more"] * (len(parts) - 1) + ["ok"]
    return [
        b"".join(
            (
                packer.pack_array_header(3),
                packer.pack(identity),
                packer.pack(kind),
                packer.pack_array_header(len(part)),
                *part,
            )
        )
        for kind, part in zip(kinds, parts, strict=True)
    ]
