"""Answers to requests of the services process: rows, in as many datagrams as they need.

A request is one msgpack list `[id, verb, …]`; its answer `[id, "ok", rows]` or `[id, "error", text]`, and before that
any number of `[id, "more", rows]`. The core (journals, queues) and the transports (subscriptions) send answers.
"""

from collections.abc import Iterable
from typing import Any

import msgpack

PART_BYTES = 60_000
"""Rows are divided into parts of this size, which a packet socket accepts; a longer row is a part of its own."""


def packed_rows(identity: object, rows: Iterable[tuple[Any, ...]], more: bool = False) -> list[bytes]:
    """Datagrams with these rows; at least one. `more`: others follow, so that the last one does not end the answer."""
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
    kinds = ["more"] * (len(parts) - 1) + ["more" if more else "ok"]
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
