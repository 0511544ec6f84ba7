"""The cost of the publish stores of the client library: alone, and as a part of publishing."""

import os
from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.process import in_own_process
from perf.peers.stores import STORES, StorePeer, measure_store
from perf.scenarios.base import Scenario

DEFAULT_MESSAGES = 1_000_000


class ClientStore(Scenario[StorePeer]):
    name = "client-store"
    question = "Publishes of 100 bytes per second of the client library with each publish store"
    peers = tuple(StorePeer(name) for name in STORES)

    def measure(self, peer: StorePeer, settings: Settings, base: Path) -> Measurement:
        count = peer.messages(settings.messages or DEFAULT_MESSAGES)
        measurement = in_own_process(measure_store, peer.name, count, base)
        os.sync()  # the next peer does not pay for this one's files
        return measurement

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        rows = []
        for result in results:
            alone = "appends_per_s" in result.runs[0].values
            rows.append(
                [
                    result.peer.title,
                    f"{result.median('appends_per_s'):,.0f}" if alone else "",
                    f"{result.median('append_us'):.2f}" if alone else "",
                    f"{result.median('longest_1000_ms'):.1f}" if alone else "",
                    f"{result.median('publishes_per_s'):,.0f}",
                    f"{result.median('publish_us'):.2f}",
                ]
            )
        return tables.lines(
            f"**{self.name}** (100 bytes, one thread, median of {settings.repetitions})",
            ["store", "appends/s", "µs CPU", "longest 1,000, ms", "publishes/s", "µs CPU"],
            rows,
        )
