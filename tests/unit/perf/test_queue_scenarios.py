"""The queue scenarios, run on a toy server, and on the installed servers of the comparison."""

import sys
from pathlib import Path

import pytest

from perf import report
from perf.measurement import Measurement, Settings
from perf.peers.amps_queue import AmpsQueue
from perf.peers.beanstalkd import Beanstalkd
from perf.peers.nats_queue import NatsWorkQueue
from perf.peers.ordered import AmpsOrdered, RabbitMqOrdered, RedisShards
from perf.peers.queueing import QueuePeer
from perf.peers.rabbitmq import RabbitMqClassic
from perf.peers.redis_group import RedisGroup
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS, chosen_peers, chosen_scenarios
from perf.scenarios.queue_depth import QueueDepth
from perf.scenarios.queue_restart import STARTS, check_depth
from perf.scenarios.queue_throughput import QueueThroughput
from perf.scenarios.queues import QUEUE_PEERS, pass_through

TOY = Path(__file__).with_name("toy_queue_server.py")


class ToyPeer(Beanstalkd):
    name = "amps-toy"
    title = "toy"
    pace = 400
    mode = "honest"

    def version(self) -> str:
        return "toy 1"

    def command(self) -> list[str]:
        return [sys.executable, str(TOY), str(self.port), self.mode]


class ForgetfulPeer(ToyPeer):
    mode = "forgetful"


class RepeatingPeer(ToyPeer):
    mode = "repeating"


class SlowPeer(ToyPeer):
    mode = "slow"
    window = 20


class OtherToyPeer(ToyPeer):
    name = "toy"


def run(name: str, tmp_path: Path, settings: Settings) -> tuple[list[list[str]], Measurement]:
    """The rows of the table, and the first run."""
    result = run_scenario(SCENARIOS[name], [ToyPeer(), OtherToyPeer()], settings, tmp_path, lambda line: None)
    lines = report.markdown([result]).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| toy ")]
    assert len(rows) == 2
    assert not list(tmp_path.iterdir())
    return rows, result.peers[0].runs[0]


def test_throughput_is_measured_with_one_to_eight_consumers(tmp_path: Path) -> None:
    rows, first = run("queue-throughput", tmp_path, Settings(messages=500, repetitions=1))
    rates = [first.values[f"messages_per_s_{count}"] for count in (1, 2, 4, 8)]
    assert first.messages == 4 * 500
    assert first.values["messages_per_s"] == max(rates)
    assert rows[0][1:5] == [f"{rate:,.0f}" for rate in rates]
    assert rows[0][5] == ""
    assert rows[1][5].endswith("×")


def test_without_a_number_of_messages_a_peer_gets_as_many_as_it_handles_in_the_time(tmp_path: Path) -> None:
    measured = QueueThroughput().measure(ToyPeer(), Settings(seconds=0.5), tmp_path)
    assert measured.messages == 4 * ToyPeer.pace * 0.5


def test_latency_is_measured_from_every_message_after_the_warm_up(tmp_path: Path) -> None:
    rows, first = run("queue-latency", tmp_path, Settings(seconds=0.5, rate=200, repetitions=1))
    assert first.messages == 200 * 2 + 100
    assert 0 < first.values["p50_us"] <= first.values["p99_us"] <= first.values["max_us"]
    assert rows[0][1] == f"{first.values['p50_us']:,.0f}"


def test_depth_is_filled_and_drained(tmp_path: Path) -> None:
    rows, first = run("queue-depth", tmp_path, Settings(seconds=20, messages=8_000, repetitions=1))
    assert first.values["depth"] == 8_000
    assert 250 < first.values["memory_bytes_per_message"] < 2500
    assert rows[0][1] == "8,000"


def test_a_queue_that_is_not_full_in_time_is_measured_at_the_depth_reached(tmp_path: Path) -> None:
    """At most 2 × 100 messages in half a second, and 20 in flight."""
    measured = QueueDepth().measure(SlowPeer(), Settings(seconds=0.5, messages=1000), tmp_path)
    assert 0 < measured.values["depth"] <= 220
    assert measured.messages == measured.values["depth"]


def test_a_queue_that_is_not_empty_at_the_end_is_no_result(tmp_path: Path) -> None:
    with ForgetfulPeer().running(tmp_path) as server, pytest.raises(PeerError, match="100 messages are left"):
        pass_through(server, 1, 2, 100)


def test_a_message_delivered_twice_is_no_result(tmp_path: Path) -> None:
    with RepeatingPeer().running(tmp_path) as server, pytest.raises(PeerError):
        pass_through(server, 1, 2, 100)


@pytest.mark.timeout(300)  # one of them starts slowly
@pytest.mark.parametrize(
    "peer_type",
    [Beanstalkd, NatsWorkQueue, RabbitMqClassic, RedisGroup, AmpsOrdered, RabbitMqOrdered, RedisShards],
    ids=lambda peer_type: peer_type.name,
)
def test_an_installed_server_delivers_and_accepts_acknowledgements(
    peer_type: type[QueuePeer], tmp_path: Path
) -> None:
    """203 is no multiple of a batch or of the consumers. The second run uses the queue as the first one left it."""
    peer = peer_type()
    try:
        peer.version()
    except PeerError as error:
        pytest.skip(str(error))
    with peer.running(tmp_path) as server:
        for consumers in (1, 3):
            assert pass_through(server, 1, consumers, 203).messages == 203


def test_a_server_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(PeerError, match="beanstalkd is not installed: apt-get install beanstalkd"):
        run_scenario(SCENARIOS["queue-depth"], [Beanstalkd()], Settings(), tmp_path, lambda line: None)
    with pytest.raises(PeerError, match="rabbitmq-server is not installed: apt-get install rabbitmq-server"):
        RabbitMqClassic().version()


def test_all_queue_scenarios_have_the_same_peers_except_for_restarts() -> None:
    queues = chosen_scenarios("queue")
    assert [scenario.name for scenario in queues] == [
        "queue-throughput",
        "queue-latency",
        "queue-depth",
        "queue-delays",
        "queue-restart",
        "queue-topics",
        "queue-ordering",
        "queue-transactions",
    ]
    *compared, delays, restart, topics, ordering, transactions = queues
    assert [peer.name for peer in ordering.peers] == [
        "amps-ordered",
        "amps-unordered",
        "rabbitmq-ordered",
        "redis-shards",
        "redis-shards-always",
    ]
    alone = (*delays.peers, *restart.peers, *topics.peers, *transactions.peers)
    assert all(peer.name.startswith("amps-") for peer in alone)
    assert all(scenario.peers == QUEUE_PEERS for scenario in compared)
    assert [peer.name for peer in chosen_peers(compared, ["rabbitmq", "amps"])[0]] == [
        "amps-queue",
        "rabbitmq-classic",
        "rabbitmq-quorum",
    ]


def test_restarts_are_measured_with_published_messages_in_the_queue(tmp_path: Path) -> None:
    scenario = SCENARIOS["queue-restart"]
    result = run_scenario(
        scenario, scenario.peers, Settings(messages=3000, repetitions=1), tmp_path, lambda line: None
    )
    values = result.peers[0].runs[0].values
    lines = report.markdown([result]).splitlines()
    for label, title in STARTS.items():
        assert f"| ready {title}, s | {values[f'{label}_start_s']:.2f} |" in lines


def test_many_queues_and_topics_are_measured_with_messages_of_the_queues(tmp_path: Path) -> None:
    scenario = SCENARIOS["queue-topics"]
    result = run_scenario(
        scenario, scenario.peers, Settings(messages=1200, repetitions=1), tmp_path, lambda line: None
    )
    values = result.peers[0].runs[0].values
    lines = report.markdown([result]).splitlines()
    assert f"| first messages of all topics, s | {values['first_messages_s']:.2f} |" in lines


def test_a_server_that_lost_part_of_its_queue_has_no_result(tmp_path: Path) -> None:
    server = AmpsQueue()
    server.directory = tmp_path
    output = tmp_path / "output.txt"
    output.write_text("ready\n")
    with pytest.raises(PeerError, match="3,000 messages were in the queues, and after a start: None"):
        check_depth(server, 3000)
    output.write_text("31-0001 queues: 2,999 messages in queues, 0.0 s.\n")
    with pytest.raises(PeerError, match="3,000 messages were in the queues, and after a start: 2,999"):
        check_depth(server, 3000)
    output.write_text("31-0001 queues: 3,000 messages in queues, 0.0 s.\n")
    check_depth(server, 3000)
