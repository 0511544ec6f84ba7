"""Rates of replays: transaction_log.md §8, §20 21 and 22, §22 35 to 37.

A machine may be slow, but never too fast: the tests only measure closely that messages do not come too early.
"""

import datetime
import time
from collections.abc import Mapping

import psutil
import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

KILOBYTES = [b"%01000d" % number for number in range(200)]
"""Messages of a size at which 100 messages take as long as 100,000 bytes, so that the kinds of rates can
be compared.
"""


def numbers(count: int, start: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def arrivals(subscriber: RawClient, count: int) -> tuple[list[bytes], list[float]]:
    """Return the bodies, and the seconds since the first arrived."""
    bodies, times_s = [], []
    for _ in range(count):
        message = subscriber.receive(30)
        times_s.append(time.monotonic())
        bodies.append(message.body)
    return bodies, [moment - times_s[0] for moment in times_s]


def race(
    subscriber: RawClient, topic: str, options: Mapping[str, str], count: int
) -> tuple[dict[str, list[tuple[bytes, float]]], list[str]]:
    """Run replays of `count` messages that begin together.

    Return the bodies and arrival times (s) of each replay by name, and the names in the order in which the replays
    ended. The slower replays show that a replay is not too slow.
    """
    for name, option in options.items():
        subscriber.subscribe(topic, name, bm="0", o=option)
    came: dict[str, list[tuple[bytes, float]]] = {name: [] for name in options}
    ended: list[str] = []
    while len(ended) < len(options):
        message = subscriber.receive(30)
        (name,) = message.subscriptions
        came[name].append((message.body, time.monotonic()))
        if len(came[name]) == count:
            ended.append(name)
    return came, ended


def took_s(came: list[tuple[bytes, float]]) -> float:
    return came[-1][1] - came[0][1]


def test_transaction_log_35_messages_per_second(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 35, protocol.md §21 61: also for messages after the replay."""
    publisher.publish_persisted(recorded_topic, KILOBYTES, 1)
    came, ended = race(subscriber, recorded_topic, {"60KB": "rate=60KB", "100": "rate=100"}, 200)
    assert ended == ["100", "60KB"]
    assert took_s(came["100"]) > 1.9
    assert [body for body, _ in came["100"]] == KILOBYTES
    assert all(took_s(came["100"][n : n + 101]) > 0.8 for n in range(100))
    subscriber.unsubscribe("60KB")
    publisher.publish_all(recorded_topic, numbers(50, start=201), first_sequence=201)
    bodies, times_s = arrivals(subscriber, 50)
    assert bodies == numbers(50, start=201)
    assert times_s[-1] > 0.4


def test_transaction_log_35_bytes_per_second(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 35 (R21): of payload, in powers of 1024."""
    publisher.publish_persisted(recorded_topic, KILOBYTES, 1)
    least_s = {"60": 3.0, "100KB": 1.8, ".1m": 1.8, "200k": 0.9}
    came, ended = race(subscriber, recorded_topic, {rate: f"rate={rate}" for rate in least_s}, 200)
    assert (ended[0], set(ended[1:3]), ended[3]) == ("200k", {"100KB", ".1m"}, "60")
    for rate, messages in came.items():
        assert [body for body, _ in messages] == KILOBYTES
        assert took_s(messages) > least_s[rate], rate


SPEEDS = {
    ".5x": ("rate=.5x", 3.5),
    "1X": ("rate=1X", 1.75),
    "cut gaps": ("rate=0.5X,rate_max_gap=300ms", 0.85),
    "uncut gaps": ("rate=2X,rate_max_gap=60s", 0.85),
    "2X": ("rate=2X", 0.85),
    "fast": ("rate=1000000X", 0.0),
}
"""By name, slowest first: the options, and the least time (s) for messages that were published in 1.8 s."""
TWICE = {"cut gaps", "uncut gaps", "2X"}
BETWEEN = {"after .5x": 2.5, "before .5x": 1.5, "before 1X": 0.75, "before 2X": 0.25}
"""By name: the duration of a replay at a rate in messages per second, in original durations."""


def recorded_s(subscriber: RawClient, topic: str, count: int) -> float:
    """How long the publishing of that many messages took, by their timestamps in the log."""
    subscriber.subscribe(topic, "times", bm="0", o="timestamp")
    first, *_, last = (
        datetime.datetime.strptime(str(message["ts"]), "%Y%m%dT%H%M%S.%fZ")
        for message in subscriber.receive_published(count)
    )
    subscriber.unsubscribe("times")
    return (last - first).total_seconds()


def test_transaction_log_36_multiples_of_the_original_speed(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 36 and 37: gaps of 0.6 s; pacing ends with the recorded messages.

    No replay may be faster than its speed. The other replays, on the same machine, show that none is slower: all
    begin together, and end in the order of their speeds. Rates in messages per second do not depend on the original
    speed. Such replays end between the others, so that a common error of all speeds, such as a factor of two, is
    found.
    """
    for number in range(1, 5):
        publisher.publish_persisted(recorded_topic, [b"%d" % number], number)
        if number < 4:
            time.sleep(0.6)
    original_s = recorded_s(subscriber, recorded_topic, 4)
    rates = {name: f"rate={3 / (factor * original_s):.6f}" for name, factor in BETWEEN.items()}
    came, ended = race(
        subscriber, recorded_topic, {**rates, **{name: options for name, (options, _) in SPEEDS.items()}}, 4
    )
    for name, (_, least_s) in SPEEDS.items():
        assert [body for body, _ in came[name]] == numbers(4)
        assert took_s(came[name]) >= least_s, name
    assert ended[:2] == ["fast", "before 2X"]
    assert set(ended[2:5]) == TWICE
    assert ended[5:] == ["before 1X", "1X", "before .5x", ".5x", "after .5x"]
    subscriber.unsubscribe("all")
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=2X,rate_max_gap=1us", a="processed,completed")
    assert len(subscriber.receive_many(5)) == 4 + 1
    publisher.publish_all(recorded_topic, numbers(3000, start=5), first_sequence=5)
    assert bodies_of(subscriber.receive_published(3000)) == numbers(3000, start=5)


def test_transaction_log_36_only_wanted_messages_keep_time(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §8: the next message of the subscription counts, not the messages between in the log."""
    publisher.publish_persisted(recorded_topic, [b'{"n":1}'], 1)
    for sequence in range(2, 8):
        time.sleep(0.1)
        publisher.publish_persisted(f"{recorded_topic}/other", [b'{"n":1}'], sequence)
    publisher.publish_persisted(recorded_topic, [b'{"n":2}', b'{"n":1}'], 8)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=1X,rate_max_gap=50ms", filter="/n = 1")
    bodies, times_s = arrivals(subscriber, 2)
    assert bodies == [b'{"n":1}', b'{"n":1}']
    assert 0.03 <= times_s[1] < 0.5


@pytest.mark.parametrize(
    "options",
    ["rate=0", "rate=-1", "rate=x", "rate=", "rate=1Y", "rate=1KBX", "rate=0X", "rate=.", "rate=1e3", "rate=nan",
     "rate=inf",     "rate=10,rate_max_gap=soon", "rate_max_gap=1s", "live,rate=5", "rate=" + "9" * 30],
)  # fmt: skip
def test_transaction_log_38_invalid_rates(subscriber: RawClient, recorded_topic: str, options: str) -> None:
    """transaction_log.md §22 38 (R22)"""
    ack = subscriber.try_subscribe(recorded_topic, "s", bm="0", o=options)
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_transaction_log_17_completed_comes_when_the_replay_does(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §20 17"""
    publisher.publish_persisted(recorded_topic, numbers(10), 1)
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "0", "sub_id": "s", "a": "processed,completed",
                     "o": "rate=20"})  # fmt: skip
    assert subscriber.wait_for_ack("processed").succeeded
    publisher.publish_persisted(recorded_topic, numbers(2, start=11), 11)
    got = subscriber.receive_many(13)
    assert got[10].is_ack("completed")
    assert [m.body for m in got if m.command == "p"] == numbers(12)


def test_transaction_log_35_caught_up_replays_cost_nothing(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §7.7: thousands of replays that wait at the end of the log, each with its own options."""
    server = start_server(log_topics=("t",))
    publisher, subscriber = peers.logged_on(server), peers.logged_on(server)
    publisher.publish_persisted("t", numbers(1), 1)
    count = 4000
    for sub_id in range(count):
        subscriber.send({"c": "subscribe", "t": "t", "sub_id": str(sub_id), "bm": "0", "o": "rate=1000"})
    assert len({*(m["sids"] for m in subscriber.receive_published(count, timeout_s=60))}) == count
    workers = [psutil.Process(pid) for pid in server.pids("amps: transport")]
    time.sleep(0.5)
    before = [worker.cpu_times() for worker in workers]
    time.sleep(1.0)
    used_s = [now.user + now.system - then.user - then.system
              for now, then in zip([worker.cpu_times() for worker in workers], before, strict=True)]  # fmt: skip
    assert len(used_s) > 0
    assert max(used_s) < 0.5
    publisher.publish("t", b"2", s=2)
    assert bodies_of(subscriber.receive_published(count, timeout_s=60)) == [b"2"] * count


def test_transaction_log_35_a_slow_rate_costs_others_nothing(
    peers: Peers,
    logged_server: ServerProcess,
    publisher: RawClient,
    subscriber: RawClient,
    recorded_topic: str,
) -> None:
    """transaction_log.md §7.7: a replay of one message a minute stands beside others on the same connection."""
    publisher.publish_persisted(recorded_topic, numbers(1000), 1)
    subscriber.subscribe(recorded_topic, "slow", bm="0", o="rate=.01")
    assert subscriber.receive().body == b"1"
    subscriber.subscribe(recorded_topic, "fast", bm="0")
    got = subscriber.receive_published(1000)
    assert bodies_of(got) == numbers(1000)
    assert all(m.subscriptions == {"fast"} for m in got)
    subscriber.unsubscribe("slow")
    subscriber.unsubscribe("fast")
    subscriber.expect_silence()
