"""The common part of the scenarios about queues: the peers, and the check after each run.

All peers store queued messages, each in its safest and in its default configuration. In the safest, an acknowledged
publish is on the disk; in the default, it is written later. Consumers may hold `PREFETCH` unacknowledged messages, and
acknowledge `ACK_BATCH` at a time. After a run the queue must be empty: every message was delivered once and
acknowledged.
"""

import os
from collections.abc import Sequence

from perf.consuming import Consumer, Exchanged, exchange
from perf.peers.amps_queue import AmpsQueue
from perf.peers.beanstalkd import Beanstalkd, BeanstalkdAlways
from perf.peers.nats_queue import NatsWorkQueue, NatsWorkQueueSynced
from perf.peers.queueing import QueuePeer
from perf.peers.rabbitmq import RabbitMqClassic, RabbitMqQuorum
from perf.peers.redis_group import RedisGroup, RedisGroupAlways
from perf.pump import Lane, PeerError
from perf.scenarios.servers import ServerScenario

QUEUE_PEERS = (
    AmpsQueue(),
    RabbitMqClassic(),
    RabbitMqQuorum(),
    NatsWorkQueue(),
    NatsWorkQueueSynced(),
    RedisGroup(),
    RedisGroupAlways(),
    Beanstalkd(),
    BeanstalkdAlways(),
)

WARM_UP_S = 0.5
"""Approximate length of the warm-up."""


class QueueScenario(ServerScenario):
    """One question about queues."""

    peers = QUEUE_PEERS


def pass_through(server: QueuePeer, publishers: int, consumers: int, messages: int) -> Exchanged:
    """Pass messages from publishers to consumers, after writing out dirty pages of earlier runs."""
    os.sync()
    lanes = server.publish_lanes(publishers, messages)
    stored = sum(lane.load.count for lane in lanes) * server.batch
    taking = server.consumers(consumers, stored)
    done = exchange(lanes, taking, stored)
    hang_up(server, lanes, taking)
    return done


def warm_up(server: QueuePeer) -> None:
    """Pass some messages, so that code is loaded and buffers have been used."""
    pass_through(server, 2, 2, int(server.pace * WARM_UP_S))


def hang_up(server: QueuePeer, lanes: Sequence[Lane], consumers: Sequence[Consumer]) -> None:
    """End a run: close its connections. Raises PeerError if the queue is not empty."""
    for sock in (*(lane.sock for lane in lanes), *(consumer.sock for consumer in consumers)):
        sock.close()
    if left := server.left():
        raise PeerError(f"{server.name}: {left} messages are left in the queue")
