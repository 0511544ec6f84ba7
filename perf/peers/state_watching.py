"""Servers whose subscribers follow a group of records each: its state first, then each change.

A record's group is one of its fields. This server filters by it, and tells subscribers of records that have left their
group. NATS has the group in the key, and a watcher is a consumer for a wildcard. Redis publishes each record a second
time, on the channel of its group, and keeps a set of the keys of each group; a subscriber subscribes, and then
queries on another connection. Neither knows when a record leaves a group, so that their records stay where they are.
"""

import socket
from collections.abc import Iterable, Sequence

from perf.peers.amps import AckCounter, frame
from perf.peers.nats import count_puback
from perf.peers.redis import encode
from perf.peers.state_amps import AmpsState
from perf.peers.state_nats import STREAM, NatsKeyValue, request, subject
from perf.peers.state_redis import PairCounter, RedisState, key_of
from perf.peers.state_server import StateServer, lane_of
from perf.pump import Lane, connect, receive_exactly_until
from perf.state_load import FIRST_GROUP, GROUP, KEY, Numbers

SNAPSHOT_BATCH = 100


class WatchedServer(StateServer):
    """A server with subscribers. Only its port goes along to their process."""

    moves = 0
    """One of so many updates moves its record to another group; 0: none."""

    def __getstate__(self) -> dict[str, object]:
        return {"port": self.port}

    def subscribe(self, group: int) -> Iterable[socket.socket]:
        """The connections of a subscriber to a group."""
        raise NotImplementedError

    def group_lane(
        self, templates: Sequence[bytes], numbers: Numbers, groups: Numbers, version: int, number: int
    ) -> Lane:
        """A publishing connection; each record is in its group."""
        raise NotImplementedError


class AmpsWatched(WatchedServer, AmpsState):
    moves = 10

    def subscribe(self, group: int) -> Iterable[socket.socket]:
        sock = self.log_on(f"watcher-{group}")[0]
        content = f"/group = '{FIRST_GROUP + group}'"
        options = {"bs": SNAPSHOT_BATCH, "o": "oof"}
        sock.sendall(frame({"c": "sow_and_subscribe", "cid": "1", "t": "state", "f": content, **options}))
        yield sock

    def group_lane(
        self, templates: Sequence[bytes], numbers: Numbers, groups: Numbers, version: int, number: int
    ) -> Lane:
        commands = self.commands(templates)
        return lane_of(self.open(), commands, numbers, version, AckCounter(), self.window, groups)


class NatsWatched(WatchedServer, NatsKeyValue):
    def subscribe(self, group: int) -> Iterable[socket.socket]:
        sock = self.open()
        sock.sendall(b"SUB watched.%d 8\r\nPING\r\n" % group)
        receive_exactly_until(sock, b"PONG\r\n")
        config = {
            "deliver_policy": "last_per_subject",
            "filter_subject": f"$KV.bench.{FIRST_GROUP + group}.>",
            "ack_policy": "none",
            "deliver_subject": f"watched.{group}",
            "inactive_threshold": 10**12,
        }
        with self.open() as asking:  # messages come to the other connection as soon as there is a consumer
            self.request(asking, f"$JS.API.CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config})
        yield sock

    def group_lane(
        self, templates: Sequence[bytes], numbers: Numbers, groups: Numbers, version: int, number: int
    ) -> Lane:
        sock = self.open()
        inbox = b"_INBOX.%d.%d" % (number, sock.getsockname()[1])
        sock.sendall(b"SUB %s 1\r\nPING\r\n" % inbox)
        receive_exactly_until(sock, b"PONG\r\n")
        commands = [request(subject(GROUP + b"." + KEY), record, inbox) for record in templates]
        return lane_of(sock, commands, numbers, version, count_puback, self.window, groups)


class TripleCounter(PairCounter):
    """Counts replies by threes."""

    together = 3


class RedisWatched(WatchedServer, RedisState):
    name = "redis-publish-everysec"
    title = "Redis, SET and PUBLISH (appendfsync everysec)"

    def subscribe(self, group: int) -> Iterable[socket.socket]:
        sock, asking = connect(self.port), connect(self.port)
        sock.sendall(encode(b"SUBSCRIBE", b"g:%d" % (FIRST_GROUP + group)))
        receive_exactly_until(sock, b":1\r\n")
        asking.sendall(encode(b"SORT", b"x:%d" % (FIRST_GROUP + group), b"BY", b"nosort", b"GET", b"s:*"))
        yield sock
        yield asking

    def group_lane(
        self, templates: Sequence[bytes], numbers: Numbers, groups: Numbers, version: int, number: int
    ) -> Lane:
        commands = [
            encode(b"SET", key_of(KEY), record)
            + encode(b"SADD", b"x:" + GROUP, KEY)
            + encode(b"PUBLISH", b"g:" + GROUP, record)
            for record in templates
        ]
        sock = connect(self.port)
        return lane_of(sock, commands, numbers, version, TripleCounter(), self.window, groups)
