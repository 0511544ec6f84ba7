"""The peers of the filter benchmark find the right messages in every format; otherwise nothing is timed."""

from dataclasses import replace
from pathlib import Path

import pytest

from perf import report
from perf.measurement import Settings
from perf.orders.corpus import Corpus, build
from perf.orders.formats import FORMATS
from perf.orders.records import SYMBOLS, orders
from perf.peers.delivery import DeliveryPeer, FilteredPeer, SubscriptionsPeer, UnfilteredPeer
from perf.peers.libraries import Orjson
from perf.peers.process import in_own_process, measure, verify
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS, chosen_peers, chosen_scenarios

MESSAGES = 300


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return build(tmp_path_factory.mktemp("corpus"), FORMATS, MESSAGES)


def inverted(corpus: Corpus) -> Corpus:
    """The corpus with an inverted claim: the other messages match."""
    symbols = tuple((number + 1) % SYMBOLS for number in corpus.symbols)
    return replace(corpus, matching=bytes(1 - match for match in corpus.matching), symbols=symbols)


@pytest.mark.parametrize("name", FORMATS)
def test_the_filter_finds_the_matching_messages_of_every_format(corpus: Corpus, name: str) -> None:
    peer = FilteredPeer("amps", "", name)
    verify(peer, corpus)
    with pytest.raises(PeerError, match="not evaluated as it should be"):
        verify(peer, inverted(corpus))


@pytest.mark.parametrize("name", FORMATS)
def test_without_a_filter_the_same_messages_are_delivered(corpus: Corpus, name: str) -> None:
    peer = UnfilteredPeer("amps", "", name)
    verify(peer, corpus)
    with pytest.raises(PeerError):
        verify(peer, inverted(corpus))


@pytest.mark.parametrize(
    ("peer", "evaluations"),
    [
        (SubscriptionsPeer("amps", "", SYMBOLS), 0),
        (SubscriptionsPeer("amps", "", SYMBOLS, "/symbol = '%s' AND /price > 0"), 1),
        (SubscriptionsPeer("amps", "", SYMBOLS, indexed=False), SYMBOLS),
    ],
    ids=["indexed", "conjunctions", "evaluated"],
)
def test_each_subscriber_gets_the_messages_of_its_symbol(
    corpus: Corpus, peer: SubscriptionsPeer, evaluations: int
) -> None:
    verify(peer, corpus)
    assert peer.prepare(corpus).facts()["evaluations_per_message"] == evaluations
    with pytest.raises(PeerError):
        verify(peer, inverted(corpus))


def test_a_library_is_checked_against_the_same_messages(corpus: Corpus) -> None:
    verify(Orjson(), corpus)
    with pytest.raises(PeerError, match="orjson returns"):
        verify(Orjson(), inverted(corpus))


def test_messages_differ_by_their_values_only(corpus: Corpus) -> None:
    """About half of them match, all differ, and every run has the same messages."""
    messages = corpus.messages("json")
    assert 0.3 < sum(corpus.matching) / corpus.count < 0.7
    assert len(set(messages)) == MESSAGES
    assert 900 < sum(map(len, messages)) / MESSAGES < 1150
    assert [order.fields for order in orders(3)] == [order.fields for order in orders(3)]


def test_a_run_counts_the_messages_of_its_process(corpus: Corpus) -> None:
    peer: DeliveryPeer = FilteredPeer("amps", "this server")
    in_own_process(verify, peer, corpus)
    with pytest.raises(PeerError):
        in_own_process(verify, peer, inverted(corpus))
    measured = in_own_process(measure, peer, corpus, 0.01)
    assert measured.messages > 0
    assert measured.values["messages_per_cpu_s"] > 0
    assert measured.cpu.total_s >= 0


def test_scenarios_and_peers_are_chosen_by_name_or_family() -> None:
    filters = chosen_scenarios("filter")
    assert [scenario.name for scenario in filters] == [
        "filter-libraries",
        "filter-types",
        "filter-subscriptions",
    ]
    assert chosen_scenarios("replay") == [SCENARIOS["replay"]]
    assert len(chosen_scenarios("all")) == len(SCENARIOS)
    named = chosen_peers(filters, ["amps-json", "orjson", "redis"])
    assert [[peer.name for peer in peers] for peers in named] == [
        ["orjson"],
        ["amps-json", "amps-json-unfiltered", "amps-json-ordered", "amps-json-ordered-unfiltered"],
        [],
    ]
    assert chosen_peers(filters, []) == [list(scenario.peers) for scenario in filters]
    with pytest.raises(ValueError, match="no scenario is called latency"):
        chosen_scenarios("latency")
    with pytest.raises(ValueError, match="no peer is called rabbit; there are amps, "):
        chosen_peers(filters, ["amps", "rabbit"])


def test_a_report_has_figures_and_ratios(tmp_path: Path) -> None:
    scenario = SCENARIOS["filter-libraries"]
    peers = [peer for peer in scenario.peers if peer.name in ("amps", "amps-unfiltered", "orjson")]
    settings = Settings(seconds=0.01, messages=MESSAGES, repetitions=2)
    said: list[str] = []
    result = run_scenario(scenario, peers, settings, tmp_path, said.append)
    assert [line.split()[1] for line in said] == ["amps", "amps-unfiltered", "orjson"] * 2
    rows = [line.split("|") for line in report.markdown([result]).splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows[2:]] == [peer.title for peer in peers]
    assert [row[3].strip()[-1:] for row in rows[2:]] == ["", "", "×"]
    written = report.as_json([result])["scenarios"]
    assert isinstance(written, dict)
    assert len(written["filter-libraries"]["peers"]["orjson"]["runs"]) == 2
    assert not list(tmp_path.iterdir())
