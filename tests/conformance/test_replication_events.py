"""The events of a pair over its life: a new instance joins, one is killed, and comes back (replication.md §17, §26, 18,
52 and 54), and of messages by their origin (55). Both flows share one connection, and each has events of its own.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.held_syncs import HeldSyncs
from tests.support.instances import To
from tests.support.replicated_pair import CHANGED_S, Pair
from tests.support.server import numbered_bodies, wait_until
from tests.support.services import action, echo, on

OUTGOING = ("connect-replication", "disconnect-replication", "replication-resync-complete")
INCOMING = ("connect-incoming-replication", "disconnect-incoming-replication")
VARIABLES = ("PEER_NAME", "GROUP_NAME", "CLIENT_NAME", "TRANSPORT_NAME", "REMOTE_ADDRESS")
COUNT = 4000


def told(event: str) -> str:
    """An action that writes the name of its event and its variables."""
    variables = "|".join(f"{{{{AMPS_REPLICATION_{name}}}}}" for name in VARIABLES)
    return action(on(event), echo(f"{event}: {variables}"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    for name, peer in ("AB", "BA"):
        # Only one dials: if both do, a flow may begin on the connection that does not stay.
        to = To(peer, dial=name == "A", transport_xml=f"<Name>way-{peer}</Name>")
        made.add(name, [to], *(told(event) for event in (*OUTGOING, *INCOMING)))
    yield made
    made.close()


def test_replication_18_the_event_comes_when_the_destination_has_everything(
    tmp_path: Path, unique: str
) -> None:
    """replication.md §17, §26 18: up to date means durable there, not sent; the log tells when all was sent."""
    syncs = HeldSyncs(tmp_path / "syncs")
    pair = Pair(tmp_path)
    try:
        pair.add("A", [To("B", exclude="replicate,cascade")], told("replication-resync-complete"))
        pair.add("B", [], environment=syncs.environment)
        proxy = pair.group.proxy("A", "B")
        pair.start()
        wait_for_events(pair, "A", replication_resync_complete=1)
        proxy.cut()
        pair.group.wait_disconnected("A", "B")
        with pair.group.client("A", unique) as client, pair.group.client("B", f"{unique}-s") as subscriber:
            subscriber.subscribe("t")
            client.publish_all("t", numbered_bodies(100), first_sequence=1, a="persisted")
            with syncs.held():
                proxy.heal()
                subscriber.receive_published(100)
                pair.group["A"].log.wait_for("1E-0005", "A!B", count=2)
                time.sleep(0.5)  # acknowledgements at intervals of 50 ms
                assert len(pair.told("replication-resync-complete")) == 1
            client.wait_for_persisted(100, CHANGED_S)
        wait_for_events(pair, "A", replication_resync_complete=2)
    finally:
        pair.close()


def test_replication_55_actions_by_the_origin_of_a_message(tmp_path: Path, unique: str) -> None:
    """replication.md §26 55, §3: `local` for what is published here, `replicated` for what others sent, by default
    both; also for topics that this instance does not record.
    """
    told = [
        action(
            on("publish-message", Topic="^[tu]$", MessageType="json", **options),
            echo(f"{name}: {{{{AMPS_TOPIC}}}} {{{{AMPS_DATA}}}} {{{{AMPS_CLIENT_NAME}}}}"),
        )
        for name, options in (
            ("local", {"MessageSource": "local"}),
            ("replicated", {"MessageSource": "replicated"}),
            ("all", {}),
        )
    ]
    pair = Pair(tmp_path)
    try:
        exclude = "txlog,replicate,cascade"
        pair.add("A", [To("B", exclude=exclude, topics=["t", "u"])], topics=("t", "u"))
        pair.add("B", [To("A", dial=False, exclude="cascade")], *told)
        pair.start()
        with pair.group.client("A", f"{unique}-a") as at_a, pair.group.client("B", f"{unique}-b") as at_b:
            at_a.publish("t", b"1", s=1)
            at_a.publish("u", b"2", s=2, a="persisted")
            at_a.wait_for_persisted(2)
            at_b.publish("t", b"3", s=1)
            at_b.publish("u", b"4")
            at_b.flush()
        expected = {
            "local": [f"t 3 {unique}-b", f"u 4 {unique}-b"],
            "replicated": [f"t 1 {unique}-a", f"u 2 {unique}-a"],
        }
        expected["all"] = sorted([*expected["local"], *expected["replicated"]])
        for name, texts in expected.items():
            wait_until(
                lambda name=name, texts=texts: sorted(pair.told(name, "B")) == texts,  # type: ignore[misc]
                CHANGED_S,
                lambda name=name: f"{name}: {pair.told(name, 'B')}",  # type: ignore[misc]
            )
        # What the log of B has does not run actions again.
        pair.group.kill("B")
        pair.start("B")
        with pair.group.client("A", f"{unique}-c") as at_a:
            at_a.publish_persisted("t", [b"5"], 1)
        wait_until(lambda: f"t 5 {unique}-c" in pair.told("all", "B"), CHANGED_S, "no action for the last one")
        for name, texts in expected.items():
            told_of = pair.told(name, "B")
            wanted = [*texts, *[f"t 5 {unique}-c"] * (name != "local")]
            # What B does not record it has lost, so A sends it once more.
            assert set(told_of) == set(wanted)
            assert sorted(one for one in told_of if one[0] == "t") == sorted(one for one in wanted if one[0] == "t")
    finally:
        pair.close()


def wait_for_events(pair: Pair, name: str, **times: int) -> None:
    """Wait until each event has occurred so often on an instance, since its first start."""
    for event, count in times.items():
        kind = event.replace("_", "-")
        wait_until(
            lambda kind=kind, count=count: len(pair.told(kind, name)) >= count,  # type: ignore[misc]
            CHANGED_S,
            lambda kind=kind: f"{kind} on {name}: {pair.told(kind, name)}",  # type: ignore[misc]
        )


def counts(pair: Pair, name: str) -> list[int]:
    return [len(pair.told(event, name)) for event in (*OUTGOING, *INCOMING)]


def test_replication_54_each_change_of_a_flow_is_one_event(pair: Pair, unique: str) -> None:
    """Behaviours 18, 52 and 54: the new instance and the killed one get all messages; the resynchronization of each
    direction ends once for each connection; the variables name the peer and the connection.
    """
    bodies = numbered_bodies(COUNT)
    pair.start("A", connected=False)
    with pair.group.client("A", unique) as client:
        client.publish_all("t", bodies[:1000], first_sequence=1, a="persisted")
        client.flush("completed")
        assert counts(pair, "A") == [0, 0, 0, 0, 0]
        pair.start("B")
        client.wait_for_persisted(1000, CHANGED_S)
        for begin in range(1000, COUNT, 500):
            client.publish_all("t", bodies[begin : begin + 500], first_sequence=begin + 1, a="persisted")
            if begin == COUNT // 2:
                for name in "AB":
                    wait_for_events(pair, name, replication_resync_complete=1, connect_incoming_replication=1)
                assert counts(pair, "A") == counts(pair, "B") == [1, 0, 1, 1, 0]
                pair.group.kill("B")
        wait_for_events(pair, "A", disconnect_replication=1, disconnect_incoming_replication=1)
        pair.start("B")
        client.wait_for_persisted(COUNT, 60)
        assert [message.body for message in pair.group.log_of("B", COUNT)] == bodies
    for name in "AB":
        wait_for_events(pair, name, replication_resync_complete=2, connect_incoming_replication=2)
    # A killed instance cannot tell of its own disconnections.
    assert counts(pair, "A") == [2, 1, 2, 2, 1]
    assert counts(pair, "B") == [2, 0, 2, 2, 0]
    for name, peer in ("AB", "BA"):
        for kind in OUTGOING:
            for text in pair.told(kind, name):
                assert text.startswith(f"{peer}|G|{name}!{peer}!sync!amps-replication|way-{peer}|127.0.0.1:"), kind
        for kind in INCOMING:
            for text in pair.told(kind, name):
                assert text.startswith(f"{peer}|G|{peer}!{name}!sync!amps-replication||127.0.0.1:"), kind
