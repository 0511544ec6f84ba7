"""Two instances of this server that replicate to each other, and wait for each other.

The persisted acknowledgement of a publish comes when it is on both instances, synced to the disk on each. Instances
acknowledge to each other every `LINK_INTERVAL`, and clients get acknowledgements every `ACK_CONFLATION`.
"""

import time
from collections.abc import Sequence

from perf.load import MarkerCounter
from perf.peers.amps import AmpsPeer, frame, receive_ack
from perf.peers.amps_queue import QUEUE, AmpsQueue
from perf.peers.groups import ServerGroup
from perf.peers.server import START_S, ServerPeer, free_port
from perf.pump import RECEIVE_BYTES, PeerError

NAMES = ("east", "west")
LINK_INTERVAL = "5ms"
END_TOPIC = "end"
"""A topic beside that of the load."""


def transport(port: int) -> str:
    return (
        "<Transport><Name>replication</Name><Type>amps-replication</Type>"
        f"<InetAddr>127.0.0.1:{port}</InetAddr></Transport>"
    )


def replication(peer: str, port: int, sync_type: str, topics: Sequence[str]) -> str:
    listed = "".join(
        f"<Topic><Name>{topic}</Name><MessageType>json</MessageType></Topic>" for topic in topics
    )
    return f"""<Group>bench</Group><Replication><Destination>
    <Name>{peer}</Name><Group>bench</Group><SyncType>{sync_type}</SyncType><PassThrough>.*</PassThrough>
    <AckConflationInterval>{LINK_INTERVAL}</AckConflationInterval>{listed}
    <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
      <ReconnectTimeout>100ms</ReconnectTimeout></Transport>
  </Destination></Replication>"""


class AmpsPair(ServerGroup):
    name = "amps-pair"
    title = "this server, pair (synced on both)"
    window = AmpsPeer.window
    pace = 500_000
    member: type[AmpsPeer] = AmpsPeer
    sync_type = "sync"
    topics: Sequence[str] = ("bench", END_TOPIC)

    def make_members(self) -> Sequence[ServerPeer]:
        return [self.member() for _ in NAMES]

    def connect_members(self) -> None:
        ports = [free_port() for _ in NAMES]
        for at, member in enumerate(self.members):
            assert isinstance(member, AmpsPeer)
            member.instance = NAMES[at]
            member.transports = transport(ports[at])
            member.sow = self.member.sow + replication(
                NAMES[1 - at], ports[1 - at], self.sync_type, self.topics
            )

    def instances(self) -> list[AmpsPeer]:
        return [member for member in self.members if isinstance(member, AmpsPeer)]

    def prepare(self) -> None:
        """Wait until each instance gets what is published to the other one."""
        for member in self.instances():
            member.prepare()
        first, second = self.instances()
        for source, sink in ((first, second), (second, first)):
            self.await_message(source, sink)

    def await_message(self, source: AmpsPeer, sink: AmpsPeer) -> None:
        """Publish a message, and wait until it arrives at another instance."""
        with sink.open() as subscriber, source.open() as publisher:
            subscriber.settimeout(START_S)
            subscriber.sendall(frame({"c": "subscribe", "cid": "1", "t": END_TOPIC, "a": "processed"}))
            receive_ack(subscriber, "processed")
            publisher.sendall(frame({"c": "p", "t": END_TOPIC}, b"{}"))
            try:
                subscriber.recv(4096)
            except TimeoutError:
                raise PeerError(f"{self.name}: the instances are not connected:\n{self.output()}") from None

    def stored_copies(self, messages: int) -> int:
        return min(count_stored(member, messages, self.copies_limit_s) for member in self.instances())


def count_stored(instance: AmpsPeer, messages: int, limit_s: float) -> int:
    """The number of messages in the log of an instance, once it has reached `messages`, or after `limit_s`."""
    deadline = time.monotonic() + limit_s
    buffer = bytearray(RECEIVE_BYTES)
    counter = MarkerCounter(buffer)
    reader = instance.reader(messages)
    with reader.sock as sock:
        sock.settimeout(1.0)
        reader.start()
        found = 0
        while found < messages and time.monotonic() < deadline:
            try:
                size = sock.recv_into(buffer)
            except TimeoutError:
                continue
            if size == 0:
                raise PeerError("the server closed the connection")
            found += counter.count(size)
    return found


class AmpsQueuePair(AmpsPair):
    name = "amps-queue-pair"
    title = "this server, pair (synced on both)"
    window = AmpsQueue.window
    member = AmpsQueue
    topics = ("bench", END_TOPIC, QUEUE)
