"""Three RabbitMQ nodes with a quorum queue of three members. A publish is confirmed when a majority has it on its disk.

The nodes share one port mapper, which is a child of the first node, and the cookie that lets them trust each other. The
first node forms the cluster, and the queue's leader is where it is declared: the load goes there.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from perf.peers.groups import ServerGroup, until_true
from perf.peers.rabbitmq import QUEUE_DECLARE_OK, Channel, RabbitMqQuorum, declare
from perf.peers.server import ServerPeer, free_port

NODES = 3
JOIN_S = 120.0
CONTROL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
RUNNING = "length(rabbit_nodes:list_running())."


class RabbitMqNode(RabbitMqQuorum):
    """One node of a cluster."""

    def prepare(self) -> None:
        """The cluster declares the queue."""

    def running_nodes(self) -> int:
        """The number of nodes of the cluster that this node sees running; 0: it cannot be asked yet."""
        asked = ["env", *self.environment(), str(CONTROL), "--quiet", "eval", RUNNING]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
        return int(told) if told.isdecimal() else 0


class RabbitMqCluster(ServerGroup):
    name = "rabbitmq-cluster"
    title = "RabbitMQ, quorum queue of 3 (synced)"
    window = RabbitMqQuorum.window
    pace = 15_000

    def make_members(self) -> Sequence[ServerPeer]:
        return [RabbitMqNode() for _ in range(NODES)]

    def nodes(self) -> list[RabbitMqNode]:
        return [member for member in self.members if isinstance(member, RabbitMqNode)]

    def connect_members(self) -> None:
        names = [f"bench{number}@localhost" for number in range(1, NODES + 1)]
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {name}\n" for number, name in enumerate(names, 1)
        )
        mapper_port = free_port()
        for at, node in enumerate(self.nodes()):
            node.node_name = names[at]
            node.configuration = f"cluster_formation.peer_discovery_backend = classic_config\n{peers}"
            cookie = node.directory / ".erlang.cookie"
            cookie.write_text("BENCHMARKS")
            cookie.chmod(0o400)
            node.mapper_port = mapper_port
            node.shares_mapper = at > 0

    def prepare(self) -> None:
        """Declare the queue when all nodes have joined: it has then a member on each."""
        for _ in until_true("RabbitMQ's nodes have formed a cluster", JOIN_S):
            if self.nodes()[0].running_nodes() == NODES:
                break
        channel = Channel(self.leader.port)
        channel.ask(declare(RabbitMqNode.queue_type), QUEUE_DECLARE_OK)
        channel.sock.close()

    def stored_copies(self, messages: int) -> int:
        """The number of messages of the queue: a message is in it when a majority of its members has it."""
        found = 0
        for _ in until_true("RabbitMQ's queue is complete"):
            found = self.nodes()[0].left()
            if found >= messages:
                break
        return found
