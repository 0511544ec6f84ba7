"""A queue of this project's server: it pushes messages to consumers, which acknowledge them by bookmark.

Messages and acknowledgements are records of the log, and synced: a message is delivered once it is on the disk. At the
end a consumer sends a `flush`, which is answered once all of its acknowledgements are on the disk, too.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence

from perf.consuming import PREFETCH, Consumer
from perf.load import PAYLOAD_BYTES
from perf.peers.amps import AmpsPeer, frame, receive_ack
from perf.peers.queueing import QueuePeer
from perf.pump import PeerError

QUEUE = "bench-queue"
ACKNOWLEDGE = b'{"c":"sow_delete","t":"%s","bm":"' % QUEUE.encode()
SUBSCRIBE = {"c": "subscribe", "cid": "1", "t": QUEUE, "a": "processed", "o": f"max_backlog={PREFETCH}"}
FLUSH = {"c": "flush", "cid": "2", "a": "persisted"}
QUIET_S = 0.5
"""A queue is empty if it sends nothing to a consumer with room for this time."""


def queue_element(backlog: int) -> str:
    """The configuration of the queue; a consumer may hold `backlog` unacknowledged messages."""
    return f"""<SOW><Queue>
    <Name>{QUEUE}</Name><MessageType>json</MessageType><UnderlyingTopic>bench</UnderlyingTopic>
    <Semantics>at-least-once</Semantics><MaxPerSubscriptionBacklog>{backlog}</MaxPerSubscriptionBacklog>
  </Queue></SOW>"""


def headers(data: bytes) -> Iterator[dict[str, object]]:
    """The headers of the whole frames at the beginning of `data`. The frames are answers, without payloads."""
    at = 0
    while len(data) - at >= 4:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            return
        yield json.loads(data[at + 4 : end])
        at = end


class BookmarkConsumer(Consumer):
    """A handle is a bookmark."""

    pattern = re.compile(rb'"bm":"([^"]+)"[^}]*\}.{%d}' % PAYLOAD_BYTES, re.DOTALL)

    def start(self) -> None:
        self.outgoing += frame(SUBSCRIBE)
        self.accepted = False

    def see(self, data: memoryview) -> None:
        """Check the answer to the subscription, which comes first."""
        if not self.accepted:
            if b'"max_backlog=%d"' % PREFETCH not in (seen := bytes(data)):
                raise PeerError(f"not subscribed to the queue: {seen[:300]!r}")
            self.accepted = True

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        bookmarks = b",".join(handles)
        size = len(ACKNOWLEDGE) + len(bookmarks) + len(b'"}')
        self.outgoing += b'%s%s%s"}' % (size.to_bytes(4, "big"), ACKNOWLEDGE, bookmarks)

    def ask_for_confirmation(self) -> None:
        self.outgoing += frame(FLUSH)

    def is_confirmed(self) -> bool:
        for header in headers(self.rest):
            if header.get("status") != "success":
                raise PeerError(f"refused: {header}")
            if header.get("cid") == FLUSH["cid"]:
                return True
        return False


class AmpsQueue(AmpsPeer, QueuePeer):
    name = "amps-queue"
    title = "this server (synced)"
    window = 20_000
    fill_window = 400_000
    pace = 1_000_000
    sow = queue_element(PREFETCH)

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        return [BookmarkConsumer(self.open()) for _ in range(count)]

    def left(self) -> int:
        """The number of messages that a new consumer gets, up to its prefetch: 0 only if the queue is empty."""
        with self.open() as sock:
            sock.sendall(frame(SUBSCRIBE))
            receive_ack(sock, "processed")
            sock.settimeout(QUIET_S)
            got = b""
            quiet_at_s = time.monotonic() + QUIET_S
            while time.monotonic() < quiet_at_s:
                try:
                    chunk = sock.recv(65536)
                except TimeoutError:
                    break
                if not chunk:
                    raise PeerError("the server closed the connection")
                got += chunk
        return got.count(b'"bm":"')  # one in the header of each message, none in payloads
