"""A work queue of NATS JetStream: a stream with `retention: workqueue` and one durable pull consumer.

Each consuming connection requests PREFETCH messages and, with each batch of acknowledgements, as many more.
Messages are acknowledged one by one, as a work queue requires, but the acknowledgements of a batch leave in one write.
The server confirms an acknowledgement that has a reply subject. So each connection acknowledges its last message
again, with one.
"""

import json
import re
import socket
from collections.abc import Sequence

from perf.consuming import ACK_BATCH, PREFETCH, Consumer
from perf.load import PAYLOAD_BYTES
from perf.peers.nats import STREAM, NatsJetStream
from perf.peers.queueing import QueuePeer

WORKERS = "workers"
ACK_WAIT_NS = 3600 * 10**9


class PullConsumer(Consumer):
    """A handle is the subject that acknowledges the message."""

    pattern = re.compile(rb"(\$JS\.ACK\.\S+) %d\r\n.{%d}" % (PAYLOAD_BYTES, PAYLOAD_BYTES), re.DOTALL)

    def __init__(self, sock: socket.socket, number: int) -> None:
        super().__init__(sock)
        self.inbox = b"_INBOX.work.%d.%d" % (number, sock.getsockname()[1])
        self.last = b""

    def start(self) -> None:
        self.outgoing += b"SUB %s 1\r\nSUB %s.confirmed 2\r\n" % (self.inbox, self.inbox)
        self.pull(PREFETCH)

    def pull(self, count: int) -> None:
        body = json.dumps({"batch": count}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{WORKERS}".encode()
        self.outgoing += b"PUB %s %s %d\r\n%s\r\n" % (subject, self.inbox, len(body), body)

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        self.last = handles[-1]
        self.outgoing += b"PUB %s 0\r\n\r\n" % b" 0\r\n\r\nPUB ".join(handles)
        if not self.finishing:
            self.pull(ACK_BATCH)

    def ask_for_confirmation(self) -> None:
        if self.last:
            self.outgoing += b"PUB %s %s.confirmed 0\r\n\r\n" % (self.last, self.inbox)

    def is_confirmed(self) -> bool:
        return not self.last or b"MSG %s.confirmed 2 " % self.inbox in self.rest


class NatsWorkQueue(NatsJetStream, QueuePeer):
    name = "nats-work-queue"
    title = "NATS JetStream work queue (default, not synced)"
    retention = "workqueue"
    pace = 100_000

    def prepare(self) -> None:
        super().prepare()
        config = {"durable_name": WORKERS, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS}
        with self.open() as sock:
            subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{WORKERS}"
            self.request(sock, subject, {"stream_name": STREAM, "config": config})

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        return [PullConsumer(self.open(), number) for number in range(count)]

    def left(self) -> int:
        with self.open() as sock:
            state = self.request(sock, f"$JS.API.STREAM.INFO.{STREAM}", {})["state"]
        assert isinstance(state, dict)
        return int(state["messages"])


class NatsWorkQueueSynced(NatsWorkQueue):
    name = "nats-work-queue-always"
    title = "NATS JetStream work queue (sync_interval: always)"
    sync = "sync_interval: always"
    pace = 2_700
