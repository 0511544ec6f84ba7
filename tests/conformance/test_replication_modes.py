"""Downgrading, upgrading, statistics and events of destinations, with pairs of servers (replication.md §8, §17)."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import To
from tests.support.peer import RawClient, Silence
from tests.support.replicated_pair import CHANGED_S, Pair
from tests.support.server import wait_until


def on(event: str, options: str = "") -> str:
    return f"<On><Module>amps-action-on-{event}</Module><Options>{options}</Options></On>"


def do(step: str, options: str = "") -> str:
    return f"<Do><Module>amps-action-do-{step}</Module><Options>{options}</Options></Do>"


def action(*parts: str) -> str:
    return f"<Action>{''.join(parts)}</Action>"


def echo(text: str) -> str:
    return do("echo-message", f"<Message>{text}</Message>")


EVERY = on("schedule", "<Every>200ms</Every>")
TICKS = action(EVERY, echo("tick"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def nothing_persisted(client: RawClient, for_s: float) -> None:
    """No acknowledgement arrives in that time."""
    with pytest.raises(Silence):
        client.wait_for_ack("persisted", timeout_s=for_s)


def downgrade(age: str, grace: str = "") -> str:
    return action(
        EVERY,
        do("downgrade-replication", f"<Age>{age}</Age>" + (f"<GracePeriod>{grace}</GracePeriod>" if grace else "")),
    )


def passes_over(pair: Pair, ticks: int) -> None:
    """Wait until the action of TICKS has run so many times more."""
    seen = len(pair.echoes("tick"))
    wait_until(lambda: len(pair.echoes("tick")) >= seen + ticks, CHANGED_S, "the schedule does not run")


def test_replication_10_a_dead_destination_is_downgraded(pair: Pair) -> None:
    """replication.md §26 10: after `Age` acknowledgement and fully durable message arrive; the trigger runs once."""
    pair.two_way(downgrade("1s"), action(on("downgrade-replication"), echo("downgraded B")), TICKS)
    pair.start()
    pair.group.kill("B")
    pair.wait_metric("is_connected", "0")
    with pair.group.client("A", "durable") as durable, pair.group.client("A", "publisher") as publisher:
        durable.subscribe("t", bm="0", o="fully_durable")
        published_s = time.monotonic()
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        publisher.wait_for_persisted(1, CHANGED_S)
        assert time.monotonic() - published_s >= 1.0
        assert durable.receive_published(1, CHANGED_S)[0].body == b'{"a":1}'
    pair.wait_metric("replication_type", "async")
    pair.group["A"].log.wait_for("1E-0017", "B downgraded from sync to async due to lack of activity")
    passes_over(pair, 5)
    assert len(pair.echoes("downgraded")) == 1


def test_replication_11_a_disconnected_destination_with_nothing_outstanding_stays_sync(pair: Pair) -> None:
    """replication.md §26 11, 25.17"""
    pair.two_way(downgrade("100ms"), TICKS)
    pair.start()
    pair.group.kill("B")
    pair.wait_metric("is_connected", "0")
    passes_over(pair, 10)
    assert pair.metric("replication_type") == "sync"


def test_replication_12_a_destination_that_caught_up_is_upgraded(pair: Pair) -> None:
    """replication.md §26 12: and waited for again."""
    upgrade = action(EVERY, do("upgrade-replication", "<Age>1s</Age>"))
    pair.two_way(downgrade("500ms"), upgrade, action(on("upgrade-replication"), echo("upgraded")))
    pair.start()
    pair.group.kill("B")
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        publisher.wait_for_persisted(1, CHANGED_S)
        pair.wait_metric("replication_type", "async")
        pair.start("B", connected=False)
        pair.wait_metric("replication_type", "sync")
        assert len(pair.echoes("upgraded")) == 1
        assert pair.group.log_of("B", 1)[0].body == b'{"a":1}'
        pair.group.kill("B")
        published_s = time.monotonic()
        publisher.publish("t", b'{"a":2}', s=2, a="persisted")
        publisher.wait_for_persisted(2, CHANGED_S)
        assert time.monotonic() - published_s >= 0.5, "it is waited for until the next downgrade"
    pair.group["A"].log.wait_for("1E-0019")


@pytest.mark.parametrize("how", ["action", "operator"])
def test_replication_13_what_is_configured_async_never_becomes_sync(pair: Pair, how: str) -> None:
    """replication.md §26 13, 25.20"""
    upgrade = action(EVERY, do("upgrade-replication", "<Age>1d</Age>"), echo("ran"))
    pair.two_way(*([upgrade] if how == "action" else []), sync=False)
    pair.start()
    if how == "action":
        wait_until(lambda: len(pair.echoes("ran")) >= 3, CHANGED_S, "the action does not run")
    else:
        assert pair.run("upgrade") == 409
        assert pair.run("downgrade") == 200
    assert pair.metric("replication_type") == "async"


MINIMUM = (
    "<Tuning><Transport><Workers>1</Workers></Transport>"
    "<Replication><MinSyncDestinations>1</MinSyncDestinations></Replication></Tuning>"
)


def test_replication_14_the_minimum_of_sync_destinations(pair: Pair) -> None:
    """replication.md §26 14, 25.5, 25.54: the action does not downgrade the last one, an operator does."""
    pair.two_way(downgrade("200ms"), TICKS, xml=MINIMUM)
    pair.start()
    ready = "/amps/instance/ready"
    wait_until(lambda: get(pair.ports["A"], ready).status == 200, CHANGED_S, "not ready")
    pair.group.kill("B")
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        passes_over(pair, 10)
        assert pair.metric("replication_type") == "sync"
        wait_until(lambda: get(pair.ports["A"], ready).status == 503, CHANGED_S, "still ready")
        assert pair.run("downgrade") == 200
        publisher.wait_for_persisted(1, CHANGED_S)
    assert pair.metric("replication_type") == "async"


def test_replication_14_of_two_dead_destinations_one_is_downgraded(pair: Pair) -> None:
    """replication.md §26 14, 25.5: the first one in the configuration."""
    one_way = "replicate,cascade"
    to = [To("B", exclude=one_way), To("C", exclude=one_way)]
    pair.add("A", to, downgrade("200ms"), TICKS, xml=MINIMUM)
    pair.add("B", [])
    pair.add("C", [])
    pair.start()
    pair.group.kill("B")
    pair.group.kill("C")
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        pair.wait_metric("replication_type", "async", "B")
        passes_over(pair, 5)
        assert pair.metric("replication_type", "C") == "sync"
        nothing_persisted(publisher, 0)


def test_replication_15_a_grace_period(pair: Pair) -> None:
    """replication.md §26 15: no downgrade before the end of the period after the start, and one after it."""
    pair.two_way(downgrade("100ms", "4s"), TICKS)
    pair.start("B", connected=False)
    began_s = time.monotonic()
    pair.start("A")
    pair.group.kill("B")
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        publisher.wait_for_persisted(1, CHANGED_S)
        assert time.monotonic() - began_s >= 4
    assert pair.metric("replication_type") == "async"


def test_replication_16_an_operator_downgrades_and_upgrades(pair: Pair) -> None:
    """replication.md §26 16: a withheld publish is acknowledged right after the downgrade."""
    pair.two_way()
    pair.start()
    pair.group.kill("B")
    pair.wait_metric("is_connected", "0")
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        nothing_persisted(publisher, 0.5)
        assert pair.run("downgrade") == 200
        publisher.wait_for_persisted(1)
        assert pair.metric("replication_type") == "async"
        assert pair.run("upgrade", "0") == 200
        assert pair.metric("replication_type") == "sync"
        publisher.publish("t", b'{"a":2}', s=2, a="persisted")
        nothing_persisted(publisher, 0.5)


def test_an_operator_reconnects_a_destination(pair: Pair) -> None:
    """replication.md §17: the connection is closed, and made again."""
    pair.two_way()
    pair.start()
    pair.wait_metric("disconnect_count", "0")
    assert pair.run("reconnect") == 200
    pair.wait_metric("disconnect_count", "1")
    pair.wait_metric("is_connected", "1")


def test_replication_17_a_restart_forgets_a_downgrade(pair: Pair) -> None:
    """replication.md §26 17: the configured type holds again, and acknowledgements are withheld."""
    pair.two_way()
    pair.start()
    pair.group.kill("B")
    assert pair.run("downgrade") == 200
    pair.group["A"].stop()
    pair.start("A", connected=False)
    assert pair.metric("replication_type") == "sync"
    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        nothing_persisted(publisher, 0.5)


def test_replication_53_seconds_behind_and_losses(pair: Pair) -> None:
    """replication.md §26 53, 25.38: 0 when idle, rises with traffic while B is stopped, constant without, then 0."""
    pair.two_way()
    pair.start()
    pair.wait_metric("seconds_behind", "0")
    assert pair.metric("disconnect_time") == ""
    pair.group.kill("B")
    pair.wait_metric("disconnect_count", "1")
    assert pair.metric("disconnect_time") != ""

    def behind() -> float:
        return float(pair.metric("seconds_behind"))

    with pair.group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":0}', s=1)
        deadline_s = time.monotonic() + CHANGED_S
        sequence = 1
        while behind() < 1 and time.monotonic() < deadline_s:
            time.sleep(0.2)
            sequence += 1
            publisher.publish("t", b'{"a":1}', s=sequence)
    before = behind()
    assert before >= 1
    time.sleep(0.5)
    assert behind() - before < 0.5  # the last message may have been counted since
    pair.start("B")
    pair.wait_metric("seconds_behind", "0")
    assert pair.metric("disconnect_count") == "1"
    first_loss = pair.metric("disconnect_time")
    pair.group.kill("B")
    pair.wait_metric("disconnect_count", "2")
    assert pair.metric("disconnect_time") > first_loss


def outgoing(event: str) -> str:
    variables = "|".join(
        f"{{{{AMPS_REPLICATION_{name}}}}}" for name in ("PEER_NAME", "CLIENT_NAME", "TRANSPORT_NAME", "GROUP_NAME")
    )
    return action(on(event), echo(f"{event}: {variables}"))


def test_replication_54_events_of_connections(pair: Pair) -> None:
    """replication.md §26 54: each once per event, with the peer, the client name and, if outgoing, the transport."""
    to_b = To("B", exclude="replicate,cascade", transport_xml="<Name>way</Name>")
    events = ("connect-replication", "disconnect-replication", "replication-resync-complete")
    pair.add("A", [to_b], *[outgoing(event) for event in events])
    incoming = ("connect-incoming-replication", "disconnect-incoming-replication")
    pair.add("B", [], *[outgoing(event) for event in incoming])
    pair.start()
    client = "A!B!sync!amps-replication"

    def seen(event: str, name: str) -> Callable[[], bool]:
        return lambda: len(pair.echoes(f"{event}: ", name)) == 1

    for event, name in (("connect-replication", "A"), ("replication-resync-complete", "A"), (incoming[0], "B")):
        wait_until(seen(event, name), CHANGED_S, f"{event} has not occurred once on {name}")
    assert pair.echoes("connect-replication: ")[0].endswith(f"connect-replication: B|{client}|way|G")
    assert f"connect-incoming-replication: A|{client}|" in pair.echoes("connect-incoming-replication: ", "B")[0]
    pair.group["A"].stop()
    wait_until(seen(incoming[1], "B"), CHANGED_S, "disconnect-incoming-replication has not occurred on B")
    assert f"disconnect-incoming-replication: A|{client}|" in pair.echoes("disconnect-incoming", "B")[0]
    pair.start("A")
    pair.group.kill("B")
    wait_until(seen("disconnect-replication", "A"), CHANGED_S, "disconnect-replication has not occurred on A")
    assert f"disconnect-replication: B|{client}|way|G" in pair.echoes("disconnect-replication: ")[0]
    for event, name, times in (
        ("connect-replication", "A", 2),
        ("replication-resync-complete", "A", 2),
        (incoming[0], "B", 2),
        (incoming[1], "B", 1),
    ):
        assert len(pair.told(event, name)) == times, event
