"""The scenarios about replication, run on this server, and on the installed servers of the comparison."""

import socket
import threading
import time
from pathlib import Path

import pytest

from perf import report
from perf.load import Load, build, in_batches
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.pacing import PacedPublisher
from perf.peers.amps import AmpsPeer
from perf.peers.amps_catch_up import AmpsCatchUp
from perf.peers.amps_pair import AmpsPair, AmpsQueuePair
from perf.peers.amps_queue import AmpsQueue
from perf.peers.catch_up import CatchUpGroup
from perf.peers.groups import ServerGroup
from perf.peers.nats_cluster import NatsCluster, NatsClusterQueue
from perf.peers.redis_catch_up import RedisBacklog, RedisDiskless, RedisFromDisk
from perf.peers.redis_pair import RedisPair, count_waits
from perf.pump import Lane, PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS, chosen_scenarios
from perf.scenarios.queues import pass_through
from perf.scenarios.replicate_catch_up import ReplicateCatchUp
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
    assert [scenario.name for scenario in chosen_scenarios("replicate")] == [
        "replicate-persist",
        "replicate-queue",
        "replicate-catch-up",
    ]


@pytest.mark.parametrize(
    "peer_type", [AmpsCatchUp, RedisDiskless, RedisFromDisk, RedisBacklog], ids=lambda peer_type: peer_type.name
)
def test_a_copy_that_was_away_gets_everything(peer_type: type[CatchUpGroup], tmp_path: Path) -> None:
    """`measure` also checks how the copy caught up, and that it has what was published meanwhile."""
    peer = peer_type()
    skip_if_absent(peer)
    measured = ReplicateCatchUp().measure(peer, Settings(messages=30_000, rate=2_000), tmp_path)
    assert measured.messages == 30_000
    assert measured.values["there_s"] <= measured.values["stored_s"]
    assert all(member.process is None for member in peer.members)
    assert not list(tmp_path.iterdir())


def test_a_copy_that_lacks_a_message_after_catching_up_gives_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(AmpsCatchUp, "stored_copies", lambda self, messages: messages - 1)
    with pytest.raises(PeerError, match=r"a copy has \d+ of \d+ confirmed messages"):
        ReplicateCatchUp().measure(AmpsCatchUp(), Settings(messages=1_000, rate=1_000), tmp_path)


def test_another_way_to_catch_up_gives_no_result(tmp_path: Path) -> None:
    class WithoutBacklog(RedisBacklog):
        settings = ("repl-backlog-size 16kb", "repl-backlog-ttl 0")

    peer = WithoutBacklog()
    skip_if_absent(peer)
    with pytest.raises(PeerError, match="sync_partial_ok of the primary did not rise"):
        ReplicateCatchUp().measure(peer, Settings(messages=5_000, rate=1_000), tmp_path)


class EchoServer:
    """Answers each byte with a byte, until its connection ends."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self.theirs:
            while data := self.theirs.recv(65536):
                self.theirs.sendall(data)


def test_a_paced_publisher_ends_with_all_answers_and_uses_further_connections() -> None:
    servers: list[EchoServer] = []

    def make_lane(count: int) -> Lane:
        servers.append(EchoServer())
        return Lane(servers[-1].ours, Load(memoryview(bytes(50)), 1, 50), len, 10)

    paced = PacedPublisher(make_lane, 1_000)
    paced.start()
    while len(servers) < 3:
        time.sleep(0.001)
    published, rate = paced.stop()
    for server in servers:
        server.thread.join()
    assert published >= 100
    assert rate <= 1_000


def test_a_failure_of_the_paced_publisher_is_raised_at_its_stop() -> None:
    server = EchoServer()
    paced = PacedPublisher(
        lambda count: Lane(server.ours, Load(memoryview(bytes(count)), 1, count), refuse, 10), 10_000
    )
    paced.start()
    server.thread.join()  # the publisher has closed the connection
    with pytest.raises(PeerError, match="refused"):
        paced.stop()


def refuse(received: memoryview) -> int:
    raise PeerError("refused")
