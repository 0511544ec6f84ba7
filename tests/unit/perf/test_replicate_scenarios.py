"""The scenarios about replication, run on this server, and on the installed servers of the comparison."""

from pathlib import Path

import pytest

from perf import report
from perf.load import build, in_batches
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.peers.amps import AmpsPeer
from perf.peers.amps_pair import AmpsPair, AmpsQueuePair
from perf.peers.amps_queue import AmpsQueue
from perf.peers.groups import ServerGroup
from perf.peers.nats_cluster import NatsCluster, NatsClusterQueue
from perf.peers.redis_pair import RedisPair, count_waits
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS, chosen_scenarios
from perf.scenarios.queues import pass_through
from perf.scenarios.replicate_persist import ReplicatePersist, rows

pytestmark = pytest.mark.timeout(240)


class SmallBatches(RedisPair):
    """The runs here are shorter than a batch of the benchmark."""

    batch = 500


def skip_if_absent(peer: ServerGroup) -> None:
    try:
        peer.version()
    except PeerError as error:
        pytest.skip(str(error))


def result(peer: AmpsPeer | ServerGroup, rate: float) -> PeerResult:
    return PeerResult(peer, "1", [Measurement({"messages_per_s": rate}, 1, 1.0, CpuTime({}))])


@pytest.mark.parametrize("peer_type", [AmpsPair, NatsCluster, SmallBatches], ids=lambda peer_type: peer_type.name)
def test_a_group_stores_what_it_confirms_in_every_copy(peer_type: type[ServerGroup], tmp_path: Path) -> None:
    """`measure` compares the copies with the confirmed messages, and ends with a PeerError if one is missing."""
    peer = peer_type()
    skip_if_absent(peer)
    measured = ReplicatePersist().measure(peer, Settings(messages=4_000, connections=2), tmp_path)
    assert measured.messages == 4_000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "peer_type", [AmpsQueuePair, NatsClusterQueue, SmallBatches], ids=lambda peer_type: peer_type.name
)
def test_a_queue_of_a_group_is_drained(peer_type: type[ServerGroup], tmp_path: Path) -> None:
    peer = peer_type()
    skip_if_absent(peer)
    with peer.running(tmp_path) as server:
        assert pass_through(server, 1, 3, 1_500).messages == 1_500
    assert all(member.process is None for member in peer.members)


def test_a_copy_that_lacks_a_confirmed_message_gives_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(AmpsPair, "stored_copies", lambda self, messages: messages - 1)
    with pytest.raises(PeerError, match="a copy has 20999 of 21000 confirmed messages"):
        ReplicatePersist().measure(AmpsPair(), Settings(messages=1_000), tmp_path)


def test_the_table_has_the_share_of_the_rate_without_replication(tmp_path: Path) -> None:
    pair, single, other = rows([result(AmpsPair(), 50), result(AmpsPeer(), 100), result(RedisPair(), 10)], "amps")
    assert pair[2:4] == ["", "50%"]
    assert single[2:4] == ["", ""]
    assert other[2:4] == ["5.00×", ""]


def test_the_queue_scenario_runs_with_both_forms_of_this_server(tmp_path: Path) -> None:
    scenario = SCENARIOS["replicate-queue"]
    peers = [AmpsQueuePair(), AmpsQueue()]
    for peer in peers:
        peer.pace = 2_000  # the warm-up takes as many messages as a peer handles in a part of a second
    settings = Settings(messages=3_000, repetitions=1)
    done = run_scenario(scenario, peers, settings, tmp_path, lambda line: None)
    assert [one.runs[0].messages for one in done.peers] == [3_000, 3_000]
    table = report.markdown([done])
    assert "this server, pair (synced on both)" in table


def test_a_batch_is_followed_by_its_end() -> None:
    load = in_batches(build(b"<", b">", 7, payload_bytes=100), 3, b"END")
    assert (load.count, load.message_bytes) == (2, 3 * 102 + 3)
    assert bytes(load.data).count(b"END") == 2
    assert bytes(load.data[load.message_bytes - 3 : load.message_bytes]) == b"END"


def test_a_publish_that_no_replica_has_is_no_result() -> None:
    assert count_waits(memoryview(b"$3\r\n1-1\r\n:1\r\n$3\r\n1-2\r\n:1\r\n")) == 2
    with pytest.raises(PeerError, match="Redis refused"):
        count_waits(memoryview(b"$3\r\n1-1\r\n:0\r\n"))


def test_the_family_is_called_replicate() -> None:
    assert [scenario.name for scenario in chosen_scenarios("replicate")] == ["replicate-persist", "replicate-queue"]
