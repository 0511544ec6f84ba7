"""Load by highly available clients on a group of instances: nothing may be lost, and nothing may come twice.

Publishers have publish stores and move between equivalent servers. The subscriber reads only what all sync
destinations have (`fully_durable`), and goes on at another server by its bookmarks. What it gets is compared with
what was published: everything, once, and each publisher's messages in their order.
"""

import json
import threading
import time
from collections.abc import Sequence
from typing import Self

from amps.client import EPOCH, FixedDelayStrategy, HAClient, MemoryPublishStore, Message
from tests.support.server import wait_until

PATIENCE_S = 60.0
WINDOW = 500
"""So many messages of a publisher are outstanding at most."""
PLACES = 1_000_000
"""Publisher i publishes the numbers from i * PLACES + 1."""


class FailoverLoad:
    """Publishers at some servers, and one subscriber. Use as a context manager.

    `publishers`: for each publisher the URIs that it uses; `subscriber`: those of the subscriber.
    """

    def __init__(self, unique: str, publishers: Sequence[Sequence[str]], subscriber: Sequence[str]) -> None:
        self.stores = [MemoryPublishStore() for _ in publishers]
        self.published = [0 for _ in publishers]
        self.received: list[int] = []
        self._publishers = [
            HAClient(
                f"{unique}-{number}",
                uris,
                publish_store=store,
                delay_strategy=FixedDelayStrategy(0.05),
                logon_options="ack_conflation=10ms",
                timeout=PATIENCE_S,
            )
            for number, (uris, store) in enumerate(zip(publishers, self.stores, strict=True))
        ]
        self._subscriber = HAClient(
            f"{unique}-subscriber", subscriber, delay_strategy=FixedDelayStrategy(0.05), timeout=PATIENCE_S
        )
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._publish, args=(number,), daemon=True)
            for number in range(len(publishers))
        ]

    def __enter__(self) -> Self:
        for client in (*self._publishers, self._subscriber):
            client.open(timeout=PATIENCE_S)
        self._subscriber.bookmark_subscribe(
            "t", EPOCH, sub_id="s", options="fully_durable", handler=self._receive
        )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for client in (*self._publishers, self._subscriber):
            client.close()

    def _publish(self, number: int) -> None:
        try:
            while not self._stopping.is_set():
                if self.stores[number].unpersisted_count() < WINDOW:
                    for _ in range(10):
                        self.published[number] += 1
                        body = {"n": number * PLACES + self.published[number]}
                        self._publishers[number].publish("t", json.dumps(body).encode())
                time.sleep(0.01)
        except BaseException as failure:
            self._failures.append(failure)

    def _receive(self, message: Message) -> None:
        self.received.append(message.json()["n"])
        message.discard()

    def describe(self) -> str:
        waiting = [store.unpersisted_count() for store in self.stores]
        return (
            f"published {self.published}, not acknowledged {waiting}, received {len(self.received)}; "
            + "; ".join(
                f"{each!r} {each.connection_info}" for each in (*self._publishers, self._subscriber)
            )
        )

    def wait_for_progress(self, count: int) -> None:
        """Wait until each publisher has published so many more, and the subscriber has got as many."""
        wanted = [published + count for published in self.published]
        received = len(self.received) + count
        wait_until(
            lambda: bool(self._failures)
            or (
                all(now >= then for now, then in zip(self.published, wanted, strict=True))
                and len(self.received) >= received
            ),
            PATIENCE_S,
            self.describe,
        )
        assert not self._failures, self._failures

    def finish(self) -> list[int]:
        """Stop publishing, wait until everything is acknowledged and received, and check what was received. Return
        all numbers, publisher by publisher.
        """
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self._failures, self._failures
        expected = [
            number * PLACES + each + 1
            for number, count in enumerate(self.published)
            for each in range(count)
        ]
        wait_until(
            lambda: (
                not any(store.unpersisted_count() for store in self.stores)
                and len(self.received) >= len(expected)
            ),
            PATIENCE_S,
            self.describe,
        )
        # A stable sort by publisher: the order of each publisher's messages shows.
        assert by_publisher(self.received) == expected
        return expected


def by_publisher(numbers: Sequence[int]) -> list[int]:
    """The numbers publisher by publisher, those of each in their order."""
    return sorted(numbers, key=lambda number: (number - 1) // PLACES)
