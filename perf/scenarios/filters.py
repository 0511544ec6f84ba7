"""The cost of filters in one process: against libraries, per message type, and with many subscriptions.

All peers of a scenario work on the same messages (`perf.orders`), each repetition in a fresh process. Each peer is
checked before the measurement (`perf.peers.process`).
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.orders.corpus import Corpus, build
from perf.orders.formats import FORMATS
from perf.peers.delivery import FilteredPeer, SubscriptionsPeer, UnfilteredPeer
from perf.peers.libraries import LIBRARIES
from perf.peers.process import ProcessPeer, in_own_process, measure, verify
from perf.scenarios.base import Scenario

DEFAULT_LENGTH_S = 2.0
SUBSCRIPTIONS = 1000


class FilterScenario(Scenario[ProcessPeer]):
    """One question about filters."""

    default_messages = 100_000
    corpus: Corpus

    @contextmanager
    def prepared(self, peers: Sequence[ProcessPeer], settings: Settings, base: Path) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="amps-perf-orders-", dir=base) as directory:
            formats = dict.fromkeys(peer.format_name for peer in peers)
            self.corpus = build(Path(directory), formats, settings.messages or self.default_messages)
            for peer in peers:
                in_own_process(verify, peer, self.corpus)
            yield

    def measure(self, peer: ProcessPeer, settings: Settings, base: Path) -> Measurement:
        return in_own_process(measure, peer, self.corpus, settings.seconds or DEFAULT_LENGTH_S)

    def title(self, settings: Settings, matching: int, filter_: str) -> str:
        """The title of the table. `matching`: the number of messages that match `filter_`."""
        count = self.corpus.count
        return (
            f"**{self.name}** ({count:,} messages, of which {matching / count:.0%} match {filter_}; "
            f"{settings.seconds or DEFAULT_LENGTH_S:g} s, median of {settings.repetitions})"
        )


class FilterLibraries(FilterScenario):
    name = "filter-libraries"
    question = (
        "JSON messages per second and core through a filter of five predicates, against Python libraries"
    )
    peers = (
        FilteredPeer("amps", "this server, from log to frame"),
        UnfilteredPeer("amps-unfiltered", "this server, the same messages delivered without a filter"),
        *LIBRARIES,
    )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        return tables.lines(
            self.title(settings, sum(self.corpus.matching), "five predicates"),
            ["peer", "messages/s and core", "ratio", "µs/message", "slowest … fastest run"],
            [
                [
                    result.peer.title,
                    f"{result.median('messages_per_cpu_s'):,.0f}",
                    tables.ratio(results, result, "messages_per_cpu_s", True),
                    f"{result.median('cpu_us_per_message'):,.2f}",
                    tables.extremes(result, "messages_per_cpu_s"),
                ]
                for result in results
            ],
        )


class FilterTypes(FilterScenario):
    """Each type twice, with the filter and without.

    The difference to delivering the matching messages is the cost of reading fields and evaluating.
    """

    name = "filter-types"
    question = "The cost of the filter of five predicates per message type"
    default_messages = 50_000
    peers = tuple(
        peer
        for name in FORMATS
        for peer in (
            FilteredPeer(f"amps-{name}", name, name),
            UnfilteredPeer(f"amps-{name}-unfiltered", name, name),
        )
    )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        by_name = {result.peer.name: result for result in results}
        matching = sum(self.corpus.matching) / self.corpus.count
        rows = []
        for name in FORMATS:
            filtered, unfiltered = by_name.get(f"amps-{name}"), by_name.get(f"amps-{name}-unfiltered")
            if filtered is None or unfiltered is None:
                continue
            with_us, without_us = (one.median("cpu_us_per_message") for one in (filtered, unfiltered))
            rows.append(
                [
                    name,
                    f"{filtered.median('bytes_per_message'):,.0f}",
                    f"{filtered.median('messages_per_cpu_s'):,.0f}",
                    f"{with_us:.2f}",
                    f"{without_us:.2f}",
                    f"{with_us - matching * without_us:.2f}",
                ]
            )
        columns = [
            "type",
            "bytes/message",
            "messages/s and core",
            "µs with filter",
            "µs per message without",
            "µs for the filter",
        ]
        title = self.title(settings, sum(self.corpus.matching), "five predicates")
        return tables.lines(title, columns, rows)


class FilterSubscriptions(FilterScenario):
    name = "filter-subscriptions"
    question = f"{SUBSCRIPTIONS:,} subscriptions with a filter for one symbol each, against evaluating each"
    peers = (
        SubscriptionsPeer("amps-1", "1 subscription: `/symbol = …`", 1),
        SubscriptionsPeer("amps-indexed", f"{SUBSCRIPTIONS:,} subscriptions: `/symbol = …`", SUBSCRIPTIONS),
        SubscriptionsPeer(
            "amps-conjunctions",
            f"{SUBSCRIPTIONS:,} subscriptions: `/symbol = … AND /price > 0`",
            SUBSCRIPTIONS,
            "/symbol = '%s' AND /price > 0",
        ),
        SubscriptionsPeer(
            "amps-evaluated",
            f"{SUBSCRIPTIONS:,} subscriptions: `/symbol = …`, each evaluated for each message",
            SUBSCRIPTIONS,
            indexed=False,
        ),
    )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        matching = sum(number < SUBSCRIPTIONS for number in self.corpus.symbols)
        return tables.lines(
            self.title(settings, matching, f"one of {SUBSCRIPTIONS:,} filters"),
            ["subscriptions", "messages/s and core", "µs/message", "filters evaluated per message"],
            [
                [
                    result.peer.title,
                    f"{result.median('messages_per_cpu_s'):,.0f}",
                    f"{result.median('cpu_us_per_message'):,.2f}",
                    f"{result.median('evaluations_per_message'):,.1f}",
                ]
                for result in results
            ],
        )
