"""Order per key: a queue with a million keys is filled without consumers, and drained by 64 of them.

Measured as in `queue_depth`. The same queue without order is beside it, so that the difference in memory is that of the
order.
"""

from perf.peers.ordered import (
    SHARDS,
    AmpsOrdered,
    AmpsUnordered,
    RabbitMqOrdered,
    RedisShards,
    RedisShardsAlways,
)
from perf.scenarios.queue_depth import QueueDepth

MESSAGES = 4_000_000
"""Four for each of a million keys, with the default of four publishers."""


class QueueOrdering(QueueDepth):
    name = "queue-ordering"
    question = (
        "Messages per second of filling and draining a queue with a million keys, in the order of each key"
    )
    peers = (AmpsOrdered(), AmpsUnordered(), RabbitMqOrdered(), RedisShards(), RedisShardsAlways())
    consumer_count = SHARDS
    messages = MESSAGES
    acknowledging = "at once"
