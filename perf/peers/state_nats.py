"""NATS KV: a JetStream stream that keeps the last message of each subject, made as the client libraries make buckets.

A key is an order's symbol and number, so that all orders of a symbol are one wildcard (a batched direct get, which
NATS has since 2.11). The server cannot filter by content: the client reads everything through a consumer and parses it.
"""

import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import orjson

from perf.load import FIRST_NUMBER
from perf.orders.lines import Document, OrderLines, is_found
from perf.orders.records import symbol
from perf.peers.nats import NatsJetStream, count_puback
from perf.peers.state_server import PIPELINED, Asking, StateServer, lane_of
from perf.pump import RECEIVE_BYTES, STALL_S, Lane, PeerError, receive_exactly_until
from perf.state_load import KEY, Numbers

STREAM = "KV_bench"
CHUNK = 1000
PULL_BATCH = 10_000
START_LIMIT_S = 300.0
DELIVERED = re.compile(rb"MSG \S+ 7 (?:\S+ )?(\d+)\r\n")


def subject(key: bytes) -> bytes:
    return b"$KV.bench." + key


def order_key(number: int, symbol_number: int) -> bytes:
    return b"%s.%d" % (symbol(symbol_number).encode(), number)


def request(name: bytes, body: bytes, inbox: bytes) -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (name, inbox, len(body), body)


class NatsKeyValue(StateServer, NatsJetStream):
    name = "nats-kv"
    title = "NATS KV (default, not synced)"
    window = 8_000

    def open(self) -> socket.socket:
        return NatsJetStream.open(self)

    def prepare(self) -> None:
        """Create the bucket; after a start on old data it is there, once its stream is recovered."""
        stream = {
            "name": STREAM,
            "subjects": ["$KV.bench.>"],
            "storage": "file",
            "num_replicas": 1,
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "duplicate_window": 120_000_000_000,
        }
        with self.open() as sock:
            self.request(sock, f"$JS.API.STREAM.CREATE.{STREAM}", stream)

    def wait_for_port(self) -> None:
        """NATS recovers its streams before it listens."""
        self.start_limit_s = START_LIMIT_S
        super().wait_for_port()

    def lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        sock = self.open()
        inbox = b"_INBOX.%d.%d" % (number, sock.getsockname()[1])
        sock.sendall(b"SUB %s 1\r\nPING\r\n" % inbox)
        receive_exactly_until(sock, b"PONG\r\n")
        commands = [request(subject(KEY), record, inbox) for record in templates]
        return lane_of(sock, commands, numbers, version, count_puback, self.window)

    def value(self, number: int) -> bytes | None:
        with self.open() as sock:
            sock.sendall(b"SUB _INBOX.value 5\r\n" + get(subject(b"%d" % number), b"_INBOX.value"))
            answer = receive_exactly_until(sock, b"}\r\n")
        return answer[answer.index(b"{") :].strip() if b"NATS/1.0 404" not in answer else None

    def count(self) -> int:
        with self.open() as sock:
            state = self.request(sock, f"$JS.API.STREAM.INFO.{STREAM}", {})["state"]
        assert isinstance(state, dict)
        return int(state["messages"])

    def load_orders(self, orders: OrderLines) -> None:
        sock = self.open()
        sock.sendall(b"SUB _INBOX.load 1\r\n")
        symbols = iter(orders.symbol_numbers().tolist())
        documents = enumerate(orders.documents(), start=FIRST_NUMBER)
        while part := list(islice(documents, CHUNK)):
            sock.sendall(
                b"".join(
                    request(subject(order_key(number, next(symbols))), document, b"_INBOX.load")
                    for number, document in part
                )
            )
            answered = 0
            while answered < len(part):
                answered += count_puback(memoryview(sock.recv(RECEIVE_BYTES)))
        sock.close()

    @cached_property
    def _asking(self) -> Asking:
        sock = self.open()
        sock.sendall(b"SUB _INBOX.asked 6\r\n")
        return Asking(sock)

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        came = 0
        wanted = list(zip(numbers.tolist(), symbols, strict=True))
        for first in range(0, len(wanted), PIPELINED):
            part = wanted[first : first + PIPELINED]
            gets = (get(subject(order_key(number, of)), b"_INBOX.asked") for number, of in part)
            came += self._asking.ask(b"".join(gets), len(part))
        return came

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        direct = b"$JS.API.DIRECT.GET." + STREAM.encode()
        bodies = (b'{"multi_last":["$KV.bench.%s.>"]}' % symbol(number).encode() for number in symbols)
        return self._asking.ask(b"".join(request(direct, body, b"_INBOX.asked") for body in bodies), expected)

    def scan(self, expected: int) -> int:
        return sum(is_found(document) for document in self._documents())

    def _documents(self) -> Iterator[Document]:
        """Everything, through a pull consumer without acknowledgements that always has two requests open."""
        with self.open() as sock:
            config = {"deliver_policy": "all", "filter_subject": "$KV.bench.*.>", "ack_policy": "none"}
            asked = {"stream_name": STREAM, "config": {**config, "inactive_threshold": 10**12}}
            created = self.request(sock, f"$JS.API.CONSUMER.CREATE.{STREAM}", asked)
            total = int(str(created["num_pending"]))
            pull = request(
                f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{created['name']}".encode(),
                json.dumps({"batch": PULL_BATCH}).encode(),
                b"_INBOX.scan",
            )
            sock.sendall(b"SUB _INBOX.scan 7\r\n" + pull * 2)
            came, requested, data, deadline = 0, 2, b"", time.monotonic() + STALL_S
            while came < total:
                data += sock.recv(RECEIVE_BYTES)
                at = 0
                while found := DELIVERED.search(data, at):
                    end = found.end() + int(found[1])
                    if len(data) < end + 2:
                        break
                    yield orjson.loads(data[found.end() : end])
                    came += 1
                    at = end + 2
                    deadline = time.monotonic() + STALL_S
                    if came % PULL_BATCH == 0 and requested * PULL_BATCH < total:
                        requested += 1
                        sock.sendall(pull)
                data = data[at:]
                if time.monotonic() > deadline:
                    raise PeerError(f"only {came} of {total} messages came: {data[:300]!r}")


def get(name: bytes, inbox: bytes) -> bytes:
    """A direct get of the last message of a subject."""
    return request(b"$JS.API.DIRECT.GET.%s.%s" % (STREAM.encode(), name), b"", inbox)


class NatsKeyValueSynced(NatsKeyValue):
    name = "nats-kv-always"
    title = "NATS KV (sync_interval: always)"
    sync = "sync_interval: always"
