"""A thousand subscribers, each of which follows a group of records: their state first, and then each change.

All records are stored. Then all subscribers subscribe, and get the records of their groups. Then records are updated in
random order; each update goes to the one subscriber of its group. Of this server, one update in ten moves its record to
another group, and the subscriber of the group that it leaves is told so (out of focus). The peers cannot tell.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.state_server import CONNECTIONS
from perf.peers.state_watching import AmpsWatched, NatsWatched, RedisWatched, WatchedServer
from perf.pump import Lane, PeerError, pump
from perf.scenarios.base import Scenario
from perf.scenarios.sow import empty_directory
from perf.state_load import FIRST_GROUP, GROUPED_RECORDS, Numbers, key_numbers, shuffled
from perf.watching import Watchers

SUBSCRIBERS = 1_000
RECORDS = 100_000
DEFAULT_UPDATES = 100_000
LIMIT_S = 120.0


class SowSubscribe(Scenario[WatchedServer]):
    name = "sow-subscribe"
    question = "Records per second to 1,000 subscribers with filters: the state, and then each change"
    peers = (AmpsWatched(), RedisWatched(), NatsWatched())

    def measure(self, peer: WatchedServer, settings: Settings, base: Path) -> Measurement:
        with empty_directory(peer, base) as directory, peer.running(directory) as server:
            return self.measure_server(server, settings)

    def measure_server(self, server: WatchedServer, settings: Settings) -> Measurement:
        numbers = key_numbers(RECORDS)
        groups = FIRST_GROUP + np.arange(RECORDS, dtype=np.int64) % SUBSCRIBERS
        publish(server, numbers, groups, 0)
        with Watchers(server.subscribe, SUBSCRIBERS) as watchers:
            first = watchers.subscribe(RECORDS)
            order = shuffled(np.arange(settings.messages or DEFAULT_UPDATES, dtype=np.int64) % RECORDS, seed=1)
            groups, moved = moved_groups(groups, order, server.moves)
            lanes = lanes_of(server, numbers[order], groups, 1)
            cpu_before, load_before = server.cpu(), time.process_time()
            began_s = time.perf_counter()
            watchers.expect(len(order) + moved)
            pump(lanes, LIMIT_S)
            last = watchers.wait()
            elapsed_s = time.perf_counter() - began_s
        values = {
            "snapshot_records_per_s": round(first.documents / first.elapsed_s),
            "delivered_per_s": round(last.documents / elapsed_s),
            "out_of_focus": moved,
        }
        cpu, load_cpu_s = server.cpu().since(cpu_before), time.process_time() - load_before
        return Measurement(values, last.documents, elapsed_s, cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        columns = {"snapshot_records_per_s": "records of the state/s", "delivered_per_s": "changes delivered/s"}
        return tables.lines(
            f"**{self.name}** ({RECORDS:,} records, {SUBSCRIBERS:,} subscribers, "
            f"{settings.messages or DEFAULT_UPDATES:,} updates, median of {settings.repetitions})",
            ["peer", *columns.values(), "changes: ratio", "of them out of focus", "server CPU µs/change"],
            [
                [
                    result.peer.title,
                    *(f"{result.median(value):,.0f}" for value in columns),
                    tables.ratio(results, result, "delivered_per_s", True),
                    f"{result.median('out_of_focus'):,.0f}",
                    f"{result.cpu_per_message_us:.2f}",
                ]
                for result in results
            ],
        )


def moved_groups(groups: Numbers, order: Numbers, moves: int) -> tuple[Numbers, int]:
    """The group of each update's record, and how many updates change it. `groups`: by record, before."""
    if not moves:
        return groups[order], 0
    current = groups.copy()
    after = np.empty(len(order), dtype=np.int64)
    for at, record in enumerate(order.tolist()):
        if at % moves == 0:
            current[record] = FIRST_GROUP + (current[record] - FIRST_GROUP + 1) % SUBSCRIBERS
        after[at] = current[record]
    return after, -(-len(order) // moves)


def lanes_of(server: WatchedServer, numbers: Numbers, groups: Numbers, version: int) -> list[Lane]:
    """All updates of a record are on one connection, so that their order is known."""
    parts = [numbers % CONNECTIONS == part for part in range(CONNECTIONS)]
    return [
        server.group_lane(GROUPED_RECORDS, numbers[part], groups[part], version, number)
        for number, part in enumerate(parts)
    ]


def publish(server: WatchedServer, numbers: Numbers, groups: Numbers, version: int) -> None:
    """Publish, and wait until everything is confirmed. Raises PeerError."""
    lanes = lanes_of(server, numbers, groups, version)
    done = pump(lanes, LIMIT_S).acknowledged
    for lane in lanes:
        lane.sock.close()
    if done != len(numbers):
        raise PeerError(f"only {done:,} of {len(numbers):,} records are stored after {LIMIT_S:g} s")
