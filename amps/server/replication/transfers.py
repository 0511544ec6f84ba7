"""Requests for queue messages on their way to the instance that owns them (replication.md §24.8).

The core says which messages it wants from which owner. This module makes XFER_REQ frames of that, forwards those of
others towards the owner, and passes those for this instance to the core. Nothing is stored: a request that is lost is
made again by the core that wants the messages.
"""

import struct
from collections.abc import Callable
from typing import Any

from amps.config import ServerConfig
from amps.server.replication.frames import Content, ProtocolError

TTL = 8
BOOKMARKS_MAX = 4096
_BOOKMARK = struct.Struct("<QQ")


class Transfers:
    """The requests that pass through this instance."""

    def __init__(
        self,
        config: ServerConfig,
        first_hops: Callable[[], dict[str, str]],
        send: Callable[[str, dict[str, Any]], None],
        pass_to_core: Callable[[int, str, bytes, int], None],
    ) -> None:
        """`first_hops`: the way to each instance. `send` sends a XFER_REQ to a neighbour. `pass_to_core` gets the
        number of a queue, the requester, bookmarks, and how many messages are wanted.
        """
        self._name = config.name
        self._queues = config.queues
        self._group = config.group
        self._numbers = {
            (queue.name, queue.message_type, self._domain(number)): number
            for number, queue in enumerate(config.queues)
        }
        self._first_hops = first_hops
        self._send = send
        self._pass_to_core = pass_to_core

    def _domain(self, number: int) -> str:
        """Which queues of that name are one queue: all, or those of a domain of group local queues."""
        queue = self._queues[number]
        return (queue.domain or self._group) if queue.kind == "GroupLocalQueue" else ""

    def wanted(self, number: int, owner: str, bookmarks: bytes, wanted: int) -> None:
        """The core of this instance wants messages of a queue from their owner."""
        if not 0 <= number < len(self._queues):
            return
        queue = self._queues[number]
        pairs = [[str(part) for part in pair] for pair in _BOOKMARK.iter_unpack(bookmarks)]
        content = {
            "queue": queue.name,
            "type": queue.message_type,
            "domain": self._domain(number),
            "bookmarks": pairs[:BOOKMARKS_MAX],
            "wanted": wanted,
            "requester": self._name,
            "owner": owner,
            "ttl": TTL,
            "path": [self._name],
        }
        hop = self._first_hops().get(owner)
        if hop is not None:
            self._send(hop, content)

    def received(self, content: Content) -> None:
        """A request has arrived: pass it to the core, or send it on. Raises ProtocolError."""
        requester = content.text("requester", chars_max=1024)
        owner = content.text("owner", chars_max=1024)
        path = content.texts("path", 64, 1024)
        ttl = content.number("ttl", highest=64)
        bookmarks = self._bookmarks(content)
        if self._name in path:
            return
        hop = self._first_hops().get(owner) if owner != self._name else None
        if hop is None:
            # For this instance, or for an owner out of reach: a proxy may grant it (replication.md §14.4).
            key = (content.text("queue"), content.text("type"), content.text("domain", ""))
            number = self._numbers.get(key)
            if number is not None and requester != self._name:
                self._pass_to_core(number, requester, bookmarks, content.number("wanted", 1, 1 << 32))
        elif ttl > 1 and hop not in path:
            self._send(hop, {**content.values, "ttl": ttl - 1, "path": [*path, self._name]})

    @staticmethod
    def _bookmarks(content: Content) -> bytes:
        pairs = content.values.get("bookmarks")
        if not isinstance(pairs, list) or len(pairs) > BOOKMARKS_MAX:
            raise ProtocolError(f"bookmarks is not a list of at most {BOOKMARKS_MAX}")
        packed = bytearray()
        for pair in pairs:
            try:
                publisher_id, sequence = pair
                packed += _BOOKMARK.pack(int(publisher_id), int(sequence))
            except (TypeError, ValueError, struct.error):
                raise ProtocolError("a bookmark is no pair of two numbers") from None
        return bytes(packed)
