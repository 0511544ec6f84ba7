"""The servers of the client cases: those of the other scenarios, with smaller bodies and a larger backlog.

The peers' servers have their default durability: what the client waits for then costs it least. This server syncs.
"""

from perf.clients.base import BACKLOG, BODY_BYTES
from perf.peers.amps import AmpsPeer, AmpsResident
from perf.peers.amps_queue import AmpsQueue, queue_element
from perf.peers.nats import NatsJetStream
from perf.peers.nats_queue import NatsWorkQueue
from perf.peers.rabbitmq import RabbitMqClassic
from perf.peers.redis import RedisEverySecond
from perf.peers.redis_group import RedisGroup


class AmpsServer(AmpsPeer):
    payload_bytes = BODY_BYTES


class AmpsReplayServer(AmpsResident):
    payload_bytes = BODY_BYTES


class AmpsQueueServer(AmpsQueue):
    payload_bytes = BODY_BYTES
    sow = queue_element(BACKLOG)


class NatsServer(NatsJetStream):
    payload_bytes = BODY_BYTES


class NatsQueueServer(NatsWorkQueue):
    payload_bytes = BODY_BYTES


class RedisServer(RedisEverySecond):
    payload_bytes = BODY_BYTES


class RedisQueueServer(RedisGroup):
    payload_bytes = BODY_BYTES


class RabbitMqServer(RabbitMqClassic):
    payload_bytes = BODY_BYTES
    window = RabbitMqClassic.fill_window


class RabbitMqStreamServer(RabbitMqServer):
    """A stream keeps its messages, so that a consumer may read them from the first one."""

    queue_type = b"stream"
