"""The cost of many queues with expressions and many topics: at the first message of each topic, and at starts.

Every queue has one expression, of several kinds, and every topic matches some of them. One message is
published to each topic; it is the topic's first message on the server. Then the server is started again and again, as
for `queue-restart`. At each start it matches all topics of the log with the queues.
"""

import time
from collections.abc import Sequence

from perf import tables
from perf.load import FIRST_NUMBER
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps import frame, receive_ack
from perf.peers.amps_queue import AmpsQueue
from perf.peers.server import ServerPeer
from perf.scenarios.queue_restart import measure_starts, start_rows
from perf.scenarios.servers import ServerScenario

QUEUES = 1000
DEFAULT_TOPICS = 2000
KINDS = ("^desk/{}/", "(?i)^DESK/{}/X$", "^ORDERS-{}$|^DIRECT-{}$", "^(desk|book)/{}/", "desk.{}.[a-z]+$")


class ManyQueues(AmpsQueue):
    """This server with queues of expressions, and journals so small that a start is about queues."""

    journal_size = "100MB"

    @property
    def sow(self) -> str:  # type: ignore[override]
        queues = (
            f"<Queue><Name>queue-{number}</Name><MessageType>json</MessageType>"
            f"<UnderlyingTopic>{KINDS[number % len(KINDS)].replace('{}', str(number))}</UnderlyingTopic>"
            f"<DefaultPublishTarget>{target(number)}</DefaultPublishTarget></Queue>"
            for number in range(QUEUES)
        )
        return f"<SOW>{''.join(queues)}</SOW>"


class QueueTopics(ServerScenario):
    name = "queue-topics"
    question = "Seconds that 1,000 queues with expressions and 2,000 topics take"
    peers = (ManyQueues(),)

    def measure_server(self, server: ServerPeer, settings: Settings) -> Measurement:
        assert isinstance(server, ManyQueues)
        topics = settings.messages or DEFAULT_TOPICS
        began_s = time.perf_counter()
        values = {"first_messages_s": round(publish_to_each(server, topics), 3)}
        cpu = server.cpu()
        values |= measure_starts(server, sum(feeds_a_queue(number) for number in range(min(topics, QUEUES))))
        return Measurement(values, topics, time.perf_counter() - began_s, cpu)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        result = results[0]
        rows = [["first messages of all topics, s", f"{result.median('first_messages_s'):.2f}"]]
        rows += start_rows(result)
        details = f"{QUEUES:,} queues, {result.runs[0].messages:,} topics, median of {settings.repetitions}"
        return tables.lines(f"**{self.name}** ({details})", ["", "figure"], rows)


def target(number: int) -> str:
    """A topic of a queue."""
    return f"desk/{number}/x" if feeds_a_queue(number) else f"DIRECT-{number}"


def publish_to_each(server: AmpsQueue, topics: int) -> float:
    """Publish one message to each topic. Seconds until all are acknowledged as stored."""
    with server.open() as sock:
        frames = b"".join(
            frame({"c": "p", "t": f"desk/{number}/x", "s": FIRST_NUMBER + number, "a": "persisted"}, b"{}")
            for number in range(topics)
        )
        began_s = time.perf_counter()
        sock.sendall(frames)
        while int(str(receive_ack(sock, "persisted")["s"])) < FIRST_NUMBER + topics - 1:
            pass
        return time.perf_counter() - began_s


def feeds_a_queue(number: int) -> bool:
    """True if the topic of this number matches the expression of the queue of this number."""
    return number % len(KINDS) != 2
