"""Three NATS servers with a stream of three replicas. A publish is confirmed when a majority has it.

By default a majority has it in memory and in the page cache; with `sync_interval: always` on its disk.
"""

import socket
import time
from collections.abc import Sequence

from perf.peers.groups import ServerGroup, until_true
from perf.peers.nats import STREAM, NatsJetStream
from perf.peers.nats_queue import NatsWorkQueue
from perf.peers.server import ServerPeer, free_port
from perf.pump import PeerError

SERVERS = 3
ELECTION_S = 60.0
ANSWER_S = 2.0
REMOVAL_S = 5.0


class NatsNode(NatsWorkQueue):
    """One server of a cluster."""

    server_name = ""
    cluster = ""
    queues = False

    def command(self) -> list[str]:
        command = super().command()
        config = self.directory / "nats.conf"
        config.write_text(config.read_text() + self.cluster)
        return command

    def request(self, sock: socket.socket, subject: str, body: object) -> dict[str, object]:
        if isinstance(body, dict) and "num_replicas" in body:
            body = {**body, "num_replicas": SERVERS}
        return super().request(sock, subject, body)

    def open(self) -> socket.socket:
        """A connection; a server without a leader does not answer requests, so they are made again soon."""
        sock = super().open()
        sock.settimeout(ANSWER_S)
        return sock

    def create(self) -> None:
        """Create the stream, and for queues the consumer."""
        if self.queues:
            self.prepare()
        else:
            NatsJetStream.prepare(self)

    def information(self) -> dict[str, object]:
        with self.open() as sock:
            return self.request(sock, f"$JS.API.STREAM.INFO.{STREAM}", {})


class NatsCluster(ServerGroup):
    name = "nats-cluster"
    title = "NATS JetStream, 3 replicas (default, not synced)"
    window = NatsJetStream.window
    pace = 60_000
    sync = ""
    retention = "limits"

    def make_members(self) -> Sequence[ServerPeer]:
        members = [NatsNode() for _ in range(SERVERS)]
        for member in members:
            member.sync = self.sync
            member.retention = self.retention
            member.queues = self.retention == "workqueue"
        return members

    def nodes(self) -> list[NatsNode]:
        return [member for member in self.members if isinstance(member, NatsNode)]

    def connect_members(self) -> None:
        ports = [free_port() for _ in range(SERVERS)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        for at, node in enumerate(self.nodes()):
            node.server_name = f"n{at + 1}"
            node.cluster = (
                f"server_name: {node.server_name}\n"
                f"cluster {{ name: bench, host: 127.0.0.1, port: {ports[at]}, routes: [{routes}] }}\n"
            )

    def prepare(self) -> None:
        """Create the stream when the servers have elected a leader; load goes to the leader of the stream."""
        for _ in until_true("NATS' servers have elected a leader", ELECTION_S):
            try:
                self.nodes()[0].create()
                break
            except (PeerError, OSError):
                continue
        for _ in until_true("NATS' stream has a leader", ELECTION_S):
            cluster = self.cluster()
            leaders = [node for node in self.nodes() if node.server_name == cluster.get("leader")]
            if leaders and self.lag(cluster) == 0:
                self.leader = leaders[0]
                return

    def cluster(self) -> dict[str, object]:
        """The state of the stream's replicas."""
        try:
            found = self.leader_information().get("cluster")
        except (PeerError, OSError):
            return {}
        return found if isinstance(found, dict) else {}

    def leader_information(self) -> dict[str, object]:
        node = self.leader
        assert isinstance(node, NatsNode)
        return node.information()

    def lag(self, cluster: dict[str, object]) -> int:
        """The number of messages that the last replica lacks; a replica that is not current counts as one more."""
        replicas = cluster.get("replicas")
        if not isinstance(replicas, list) or len(replicas) != SERVERS - 1:
            return 1
        return max(int(one.get("lag", 0)) + (not one.get("current")) for one in replicas)

    def stored_copies(self, messages: int) -> int:
        found = 0
        for _ in until_true("NATS' replicas are complete"):
            information = self.leader_information()
            cluster, state = information["cluster"], information["state"]
            assert isinstance(cluster, dict)
            assert isinstance(state, dict)
            if self.lag(cluster) == 0:
                found = int(state["messages"])
                break
        return found


class NatsClusterSynced(NatsCluster):
    name = "nats-cluster-always"
    title = "NATS JetStream, 3 replicas (sync_interval: always)"
    sync = "sync_interval: always"
    pace = 2_000


class NatsClusterQueue(NatsCluster):
    name = "nats-work-queue-cluster"
    title = "NATS JetStream work queue, 3 replicas (default, not synced)"
    retention = "workqueue"
    pace = 40_000

    def left(self) -> int:
        """The replicas remove messages a moment after the acknowledgement is confirmed."""
        deadline = time.monotonic() + REMOVAL_S
        while (left := super().left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


class NatsClusterQueueSynced(NatsClusterQueue):
    name = "nats-work-queue-cluster-always"
    title = "NATS JetStream work queue, 3 replicas (sync_interval: always)"
    sync = "sync_interval: always"
    pace = 1_500
