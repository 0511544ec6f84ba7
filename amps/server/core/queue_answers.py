"""The core's answers about its queues: who takes messages from one, and what waits in it (queues.md §18, `details`).

Asked by the services process, as about journals (journal_keeper.py): `[id, "queue", number]`; answered with rows of
`amps._core.queue_details`, in parts that a packet socket takes.
"""

from collections.abc import Iterable
from typing import Any

import msgpack

from amps._core.queue_details import describe_queue
from amps._core.sequencer import Sequencer

VERB = "queue"
PART_BYTES = 60_000


def answer_about_queue(request: bytes, sequencer: Sequencer) -> list[bytes] | None:
    """Datagrams to send; None: nothing about a queue is asked, or what is asked cannot be understood."""
    try:
        asked = msgpack.unpackb(request)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    if not isinstance(asked, list) or len(asked) != 3 or asked[1] != VERB:
        return None
    identity, _, number = asked
    desk = sequencer.desk
    known = 0 if desk is None else len(desk.book.queues)
    if desk is None or isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < known:
        return [msgpack.packb([identity, "error", f"there is no queue of the number {number!r}"])]
    return _answer(identity, describe_queue(desk.book, number, sequencer.names))


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
