"""This server as a keeper of states: a topic of the state of the world that is recorded in the transaction log.

A publish is confirmed (`persisted`) after fdatasync has returned for it. Queries ask for the whole documents.
"""

import importlib.util
import socket
from collections.abc import Sequence
from functools import cached_property

from perf.orders.lines import SCAN_PRICE_LIMIT, OrderLines
from perf.orders.records import CURRENCY, QUANTITY_LEAST, QUANTITY_MOST, REGION, STATUSES, symbol
from perf.peers.amps import AckCounter, AmpsPeer, frame, receive_ack
from perf.peers.state_server import PIPELINED, Asking, StateServer, lane_of
from perf.pump import Lane, PeerError
from perf.state_load import SEQUENCE, Numbers

TOPIC = "state"
ORDERS = "orders"
BATCH = 100
"""Records in one message of a query's result."""
LOADED_TOGETHER = 20_000


def publish(command: str, topic: str, record: bytes) -> bytes:
    """A publish as a template."""
    header = b'{"c":"%s","t":"%s","s":%s,"a":"persisted"}' % (command.encode(), topic.encode(), SEQUENCE)
    return (len(header) + len(record)).to_bytes(4, "big") + header + record


class AmpsState(StateServer, AmpsPeer):
    name = "amps"
    title = "this server (synced)"

    def absence(self) -> str:
        found = importlib.util.find_spec("amps.config.model_sow")
        return "" if found else "this version has no topics of the state of the world"

    @property
    def sow(self) -> str:  # type: ignore[override]
        topics = "".join(
            f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/{key}</Key>{more}"
            f"<FileName>{self.directory}/%n.sow</FileName></Topic>"
            for name, key, more in (
                (TOPIC, "n", ""),
                (ORDERS, "id", "<HashIndex><Key>/symbol</Key></HashIndex>"),
            )
        )
        return f"<SOW>{topics}</SOW>"

    def open(self) -> socket.socket:
        return AmpsPeer.open(self)

    def lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        return lane_of(self.open(), self.commands(templates), numbers, version, AckCounter(), self.window)

    def commands(self, templates: Sequence[bytes]) -> list[bytes]:
        """Publishes of these records, to their topic."""
        topic = ORDERS if b'"id"' in templates[0] else TOPIC
        return [publish("p", topic, record) for record in templates]

    def delta_lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        commands = [publish("delta_publish", ORDERS, record) for record in templates]
        return lane_of(self.open(), commands, numbers, version, AckCounter(), self.window)

    def value(self, number: int) -> bytes | None:
        """A record of either topic."""
        for topic, content in ((TOPIC, f"/n = '{number}'"), (ORDERS, f"/id = '{number}'")):
            with self.open() as sock:
                sock.sendall(query(topic, content))
                answer = receive_group(sock)
            if b'"c":"sow"' in answer:
                return answer[answer.index(b"}{") + 1 : answer.rindex(b"}", 0, answer.index(b'"group_end"')) + 1]
        return None

    def count(self) -> int:
        with self.open() as sock:
            sock.sendall(frame({"c": "sow", "cid": "1", "t": TOPIC, "o": "top_n=0", "a": "stats"}))
            return int(str(receive_ack(sock, "stats")["matches"]))

    def load_orders(self, orders: OrderLines) -> None:
        with self.open() as sock:
            parts: list[bytes] = []
            for number, document in enumerate(orders.documents(), start=1):
                parts.append(frame({"c": "p", "t": ORDERS, "s": number, "a": "persisted"}, document))
                if number % LOADED_TOGETHER == 0 or number == orders.count:
                    sock.sendall(b"".join(parts))
                    parts.clear()
                    while int(str(receive_ack(sock, "persisted")["s"])) < number:
                        pass

    @cached_property
    def _asking(self) -> Asking:
        return Asking(self.open())

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        came = 0
        for first in range(0, len(numbers), PIPELINED):
            part = numbers[first : first + PIPELINED].tolist()
            queries = (query(ORDERS, f"/id = '{number}'") for number in part)
            came += self._asking.ask(b"".join(queries), len(part))
        return came

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        queries = (query(ORDERS, f"/symbol = '{symbol(number)}'") for number in symbols)
        return self._asking.ask(b"".join(queries), expected)

    def scan(self, expected: int) -> int:
        statuses = ", ".join(f"'{status}'" for status in STATUSES)
        content = (
            f"/status IN ({statuses}) AND /price < {SCAN_PRICE_LIMIT} AND /quantity BETWEEN {QUANTITY_LEAST} AND "
            f"{QUANTITY_MOST} AND /account/region != '{REGION}' AND /currency != '{CURRENCY}'"
        )
        return self._asking.ask(query(ORDERS, content), expected)


def query(topic: str, content: str) -> bytes:
    return frame({"c": "sow", "cid": "1", "t": topic, "f": content, "bs": BATCH})


def receive_group(sock: socket.socket) -> bytes:
    """Everything up to the end of a query's result."""
    got = b""
    while b'"group_end"' not in got:
        chunk = sock.recv(65536)
        if not chunk:
            raise PeerError("the server closed the connection")
        got += chunk
    return got
