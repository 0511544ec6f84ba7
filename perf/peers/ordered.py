"""Queues that keep the order of each key while many consumers take messages.

The key of a message is its number, so there are as many keys as each publisher has messages. This server's queue has an
`OrderingKey`. The others have no order per key, so keys are divided among as many queues or streams as there are
consumers, each with one consumer: RabbitMQ by a consistent-hash exchange before queues with a single active consumer,
Redis by the publishers' choice of a stream. There, a slow message holds back all keys of its part.

Consumers acknowledge what they have at once: an acknowledgement that waits for a batch holds back the next message of
its key.
"""

import re
import struct
from collections.abc import Sequence

import numpy as np

from perf.consuming import PREFETCH, Consumer, Demand
from perf.load import FIRST_NUMBER, NUMBER_DIGITS, PAYLOAD_BYTES, Load, build
from perf.peers.amps_queue import AmpsQueue, BookmarkConsumer, queue_element
from perf.peers.rabbitmq import (
    BASIC_CONSUME,
    BASIC_DELIVER,
    BASIC_PUBLISH,
    BASIC_QOS,
    BASIC_QOS_OK,
    BODY,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    CONSUMER_TAG,
    DELIVERY_MODE_FLAG,
    DURABLE,
    FRAME_END,
    FRAME_HEAD,
    HEADER,
    PASSIVE,
    PERSISTENT,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    Channel,
    ChannelConsumer,
    ConfirmCounter,
    RabbitMqClassic,
    frame,
    long_text,
    method,
    short_text,
    table,
)
from perf.peers.redis import count_replies, encode
from perf.peers.redis_group import GROUP, GroupConsumer, RedisGroup
from perf.pump import Lane, PeerError, connect

SHARDS = 64
EXCHANGE = b"ordered"
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
QUEUE_BIND, QUEUE_BIND_OK = (50, 20), (50, 21)
PLUGIN = "rabbitmq_consistent_hash_exchange"
NUMBER = b"0" * NUMBER_DIGITS


class EagerBookmarkConsumer(BookmarkConsumer):
    eager = True


class AmpsUnordered(AmpsQueue):
    """The same queue without an `OrderingKey`, for comparison."""

    name = "amps-unordered"
    title = "this server (synced), without order"

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        return [EagerBookmarkConsumer(self.open()) for _ in range(count)]


class AmpsOrdered(AmpsUnordered):
    name = "amps-ordered"
    title = "this server (synced), OrderingKey"
    sow = queue_element(PREFETCH).replace("</Queue>", "<OrderingKey>/n</OrderingKey></Queue>")


# --- RabbitMQ -------------------------------------------------------------------------------------------------


def queue_name(shard: int) -> bytes:
    return b"bench%02d" % shard


def declare_passively(shard: int) -> bytes:
    return method(QUEUE_DECLARE, b"\0\0" + short_text(queue_name(shard)) + bytes([PASSIVE]) + table({}))


def deliver_pattern() -> re.Pattern[bytes]:
    """The pattern of a delivery; its group is the delivery tag."""
    start = struct.pack(">HH", *BASIC_DELIVER) + short_text(CONSUMER_TAG)
    rest_of_method = 1 + len(short_text(EXCHANGE)) + len(short_text(NUMBER)) + len(FRAME_END)
    properties_frame = FRAME_HEAD.size + len(struct.pack(">HHQH", 0, 0, 0, 0) + PERSISTENT) + len(FRAME_END)
    until_end = rest_of_method + properties_frame + FRAME_HEAD.size + PAYLOAD_BYTES + len(FRAME_END)
    return re.compile(re.escape(start) + b"(.{8}).{%d}" % until_end, re.DOTALL)


class ShardConsumer(ChannelConsumer):
    """The consumer of one queue."""

    pattern = deliver_pattern()
    eager = True
    shard = 0

    def start(self) -> None:
        consume = b"\0\0" + short_text(queue_name(self.shard)) + short_text(CONSUMER_TAG) + b"\0" + table({})
        self.outgoing += method(BASIC_CONSUME, consume)

    def ask_for_confirmation(self) -> None:
        self.outgoing += declare_passively(self.shard)

    def is_confirmed(self) -> bool:
        return struct.pack(">HH", *QUEUE_DECLARE_OK) + short_text(queue_name(self.shard)) in self.rest


class RabbitMqOrdered(RabbitMqClassic):
    name = "rabbitmq-ordered"
    title = "RabbitMQ, consistent hash, 64 classic queues with a single active consumer"
    window = 1_000

    def command(self) -> list[str]:
        (self.directory / "plugins").write_text(f"[{PLUGIN}].\n")
        return super().command()

    def prepare(self) -> None:
        channel = Channel(self.port)
        exchange = b"\0\0" + short_text(EXCHANGE) + short_text(b"x-consistent-hash") + bytes([DURABLE])
        channel.ask(method(EXCHANGE_DECLARE, exchange + table({})), EXCHANGE_DECLARE_OK)
        arguments = short_text(b"x-queue-type") + b"S" + long_text(b"classic")
        arguments += short_text(b"x-single-active-consumer") + b"t\x01"
        for shard in range(SHARDS):
            name = short_text(queue_name(shard))
            declared = b"\0\0" + name + bytes([DURABLE]) + long_text(arguments)
            channel.ask(method(QUEUE_DECLARE, declared), QUEUE_DECLARE_OK)
            weight = short_text(b"10")
            bound = b"\0\0" + name + short_text(EXCHANGE) + weight + b"\0" + table({})
            channel.ask(method(QUEUE_BIND, bound), QUEUE_BIND_OK)
        channel.sock.close()

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        publish = method(BASIC_PUBLISH, b"\0\0" + short_text(EXCHANGE) + short_text(NUMBER) + b"\0")
        properties = struct.pack(">HHQH", 60, 0, PAYLOAD_BYTES, DELIVERY_MODE_FLAG) + PERSISTENT
        prefix = publish + frame(HEADER, 1, properties) + FRAME_HEAD.pack(BODY, 1, PAYLOAD_BYTES)
        lanes = []
        for _ in range(connections):
            channel = Channel(self.port)
            channel.ask(method(CONFIRM_SELECT, b"\0"), CONFIRM_SELECT_OK)
            load = build(prefix, FRAME_END, messages // connections, publish.index(NUMBER))
            lanes.append(Lane(channel.sock, load, ConfirmCounter(), self.window // connections))
        return lanes

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        """One per queue, whatever the count."""
        consumers = []
        for shard in range(SHARDS):
            channel = Channel(self.port)
            channel.ask(method(BASIC_QOS, struct.pack(">IHB", 0, PREFETCH, 0)), BASIC_QOS_OK)
            consumers.append(ShardConsumer(channel.sock))
            consumers[-1].shard = shard
        return consumers

    def left(self) -> int:
        channel = Channel(self.port)
        counts = []
        for shard in range(SHARDS):
            answer = channel.ask(declare_passively(shard), QUEUE_DECLARE_OK)
            counts.append(struct.unpack_from(">I", answer, len(short_text(queue_name(shard))))[0])
        channel.sock.close()
        return sum(counts)


# --- Redis ----------------------------------------------------------------------------------------------------


def stream_name(shard: int) -> bytes:
    return b"ben%02d" % shard


def shards_of(count: int) -> np.ndarray:
    """The shard of each message of a load."""
    return np.arange(FIRST_NUMBER, FIRST_NUMBER + count) % SHARDS


def write_shards(load: Load, at: int) -> None:
    """Write the two digits of the shard into each message, at an offset."""
    rows = np.asarray(load.data).reshape(load.count, load.message_bytes)
    shards = shards_of(load.count)
    rows[:, at] = shards // 10 + ord("0")
    rows[:, at + 1] = shards % 10 + ord("0")


class StreamConsumer(GroupConsumer):
    """The consumer of one stream."""

    entries = re.compile(rb"\$5\r\nben\d\d\r\n\*(\d+)\r\n")
    eager = True


class RedisShards(RedisGroup):
    name = "redis-shards"
    title = "Redis, 64 streams (appendfsync everysec)"

    def __init__(self) -> None:
        super().__init__()
        self.planned = [0] * SHARDS

    def prepare(self) -> None:
        for shard in range(SHARDS):
            self.ask(b"+OK\r\n", b"XGROUP", b"CREATE", stream_name(shard), GROUP, b"0", b"MKSTREAM")

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        words = encode(b"XADD", stream_name(0), b"*", b"d", b"").removesuffix(b"$0\r\n\r\n")
        prefix = words + b"$%d\r\n" % PAYLOAD_BYTES
        lanes = []
        for _ in range(connections):
            load = build(prefix, b"\r\n", messages // connections)
            write_shards(load, prefix.index(stream_name(0)) + len(b"ben"))
            lanes.append(Lane(connect(self.port), load, count_replies, self.window // connections))
        each = np.bincount(shards_of(messages // connections), minlength=SHARDS)
        self.planned = [int(count) * connections for count in each]
        return lanes

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        """One per stream, whatever the count. A consumer must not ask for more than its stream gets."""
        stored = [int(self.ask(b"\r\n", b"XLEN", stream_name(shard))[1:]) for shard in range(SHARDS)]
        wanted = stored if sum(stored) else self.planned
        if sum(wanted) != messages:
            raise PeerError(f"{sum(wanted)} messages for {messages}")
        consumers = []
        for shard in range(SHARDS):
            consumers.append(StreamConsumer(connect(self.port), shard, Demand(wanted[shard])))
            consumers[-1].stream = stream_name(shard)
        return consumers

    def left(self) -> int:
        return sum(int(self.ask(b"\r\n", b"XLEN", stream_name(shard))[1:]) for shard in range(SHARDS))


class RedisShardsAlways(RedisShards):
    name = "redis-shards-always"
    title = "Redis, 64 streams (appendfsync always)"
    fsync = "always"
    pace = 130_000
