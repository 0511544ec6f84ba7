"""The peers of the benchmark of deltas make the same messages as plain Python; otherwise nothing is timed."""

from pathlib import Path

import pytest

from perf.measurement import Settings
from perf.orders.corpus import Corpus, build
from perf.peers.documents import OPERATIONS, OrjsonDocuments, OwnDocuments
from perf.peers.process import measure, verify
from perf.pump import PeerError
from perf.scenarios import SCENARIOS

MESSAGES = 100


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return build(tmp_path_factory.mktemp("corpus"), ["json"], MESSAGES)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("peer", [OwnDocuments, OrjsonDocuments])
def test_each_peer_makes_the_right_messages(
    corpus: Corpus, peer: type[OwnDocuments] | type[OrjsonDocuments], operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify(peer(operation), corpus)
    assert measure(peer(operation), corpus, 0.01).values["messages_per_cpu_s"] > 0
    work = peer(operation).prepare(corpus)
    monkeypatch.setattr(work, "_operation", lambda message, other: b'{"wrong":1}')
    with pytest.raises(PeerError, match="makes"):
        work.verify(corpus)


def test_the_report_compares_operation_by_operation(tmp_path: Path) -> None:
    scenario = SCENARIOS["document-deltas"]
    settings = Settings(seconds=0.01, messages=MESSAGES, repetitions=1)
    assert scenario.question
    with scenario.prepared([], settings, tmp_path):
        assert scenario.table(settings, [])[-1].startswith("| ---")
