"""SOW topics of instances that replicate to each other (replication.md §26, 30 to 32, 34 and 39; sow.md §4, §5)."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.instances import Instances, Sent, To, two_way
from tests.support.peer import RawClient
from tests.support.server import wait_until
from tests.support.sow import bodies, publish, rows, topic_xml

EQUAL_S = 30.0
NEVER_S = 1.0
"""So long a test waits for what must not come."""
TRIANGLE = ("A", "B", "C")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def sow_xml(*topics: str) -> str:
    return f"<SOW>{''.join(topics)}</SOW>"


KEYED = sow_xml(topic_xml("t", "/id"))


def pair(group: Instances, xml: str = KEYED, **options: Any) -> Instances:
    for name, to in two_way(**options):
        group.add(name, to, xml=xml)
    return group


def state(client: RawClient, topic: str = "t") -> dict[str, Any]:
    """{SOW key: message} of the records of a topic."""
    return {str(row.header["k"]): json.loads(row.body) for row in rows(client, topic)}


def wait_state(group: Instances, name: str, expected: list[Any], topic: str = "t") -> None:
    """Wait until an instance has exactly these messages, in any order."""
    with group.client(name, f"state-{name}-{time.monotonic_ns()}") as client:
        wait_until(
            lambda: sorted(bodies(client, topic), key=repr) == sorted(expected, key=repr),
            EQUAL_S,
            lambda: f"{name} has {bodies(client, topic)}, not {expected}\n{group[name].excerpt(40)}",
        )


def states_equal(group: Instances, *names: str) -> bool:
    found = []
    for name in names:
        with group.client(name, f"compare-{name}-{time.monotonic_ns()}") as client:
            found.append(state(client))
    return all(one == found[0] for one in found)


def delete(client: RawClient, topic: str = "t", **fields: Any) -> None:
    """Delete records, and wait until that is durable everywhere."""
    cid = client.new_id()
    client.send({"c": "sow_delete", "t": topic, "cid": cid, "a": "persisted", **fields})
    assert client.wait_for_ack("persisted", cid).succeeded


def test_replication_30_a_delta_arrives_as_the_merged_message(group: Instances, unique: str) -> None:
    """replication.md §26, 30: a replay on B has the whole message, and B's record is A's."""
    pair(group).start()
    with group.client("A", unique) as client:
        publish(client, "t", {"id": 1, "x": 1, "y": 1}, {"id": 2})
        client.send({"c": "delta_publish", "t": "t"}, b'{"id":1,"y":2}')
        client.send({"c": "delta_publish", "t": "t"}, b'{"id":3,"y":3}')
        client.flush("persisted")
        there = group.log_of("B", 4)
        assert [json.loads(message.body) for message in there[2:]] == [{"id": 1, "x": 1, "y": 2}, {"id": 3, "y": 3}]
        wait_state(group, "B", [{"id": 1, "x": 1, "y": 2}, {"id": 2}, {"id": 3, "y": 3}])
        with group.client("B", unique + "-b") as other:
            assert state(other) == state(client)
            other.send({"c": "delta_publish", "t": "t"}, b'{"id":1,"z":7}')
            other.flush("persisted")
        wait_state(group, "A", [{"id": 1, "x": 1, "y": 2, "z": 7}, {"id": 2}, {"id": 3, "y": 3}])


def test_replication_31_fields_are_computed_where_a_message_is_published(group: Instances, unique: str) -> None:
    """replication.md §26, 31."""
    enrichment = "<Field>AMPS_INSTANCE_NAME() AS /src</Field>"
    pair(group, sow_xml(topic_xml("t", "/id", Enrichment=enrichment))).start()
    for name, number in (("A", 1), ("B", 2)):
        with group.client(name, f"{unique}-{name}") as client:
            publish(client, "t", {"id": number})
    for name in ("A", "B"):
        wait_state(group, name, [{"id": 1, "src": "A"}, {"id": 2, "src": "B"}])


def test_replication_32_a_deletion_removes_the_same_keys(group: Instances, unique: str) -> None:
    """replication.md §26, 32: a record that matches the filter only on B stays. B replicates nothing."""
    group.add("A", [To("B", exclude="replicate,cascade")], xml=KEYED)
    group.add("B", xml=KEYED)
    group.start()
    with group.client("A", unique) as client, group.client("B", unique + "-b") as other:
        publish(client, "t", *({"id": number, "x": number % 2} for number in range(6)))
        wait_state(group, "B", bodies(client, "t"))
        publish(other, "t", {"id": 77, "x": 1}, {"id": 3, "x": 0, "changed": 1})
        other.subscribe("t", o="oof")
        delete(client, f="/x = 1")
        wait_state(group, "B", [{"id": 77, "x": 1}, *({"id": number, "x": 0} for number in (0, 2, 4))])
        left = [json.loads(message.body) for message in other.receive_many(3)]
        assert sorted(one["id"] for one in left) == [1, 3, 5]
        assert {"id": 3, "x": 0, "changed": 1} in left


def test_a_deletion_passes_an_instance_that_has_no_such_record(group: Instances, unique: str) -> None:
    """replication.md 25.8: what was removed goes on as it is, also if the state of an instance in between differs."""
    one_way = "replicate,cascade"
    group.add("A", [To("B", exclude=one_way)], xml=KEYED)
    group.add("B", [To("C", topics=[Sent("t", "/x = 1")], exclude=one_way)], xml=KEYED)
    group.add("C", xml=KEYED)
    group.start()
    with (
        group.client("A", unique) as first,
        group.client("B", unique + "-b") as between,
        group.client("C", unique + "-c") as last,
    ):
        publish(first, "t", {"id": 1, "x": 0}, {"id": 2, "x": 0}, {"id": 3, "x": 1})
        wait_state(group, "B", bodies(first, "t"))
        wait_state(group, "C", [{"id": 3, "x": 1}])
        publish(last, "t", {"id": 1, "x": 5}, {"id": 2, "x": 5})
        delete(between, f="/id = 1")
        wait_state(group, "C", [{"id": 2, "x": 5}, {"id": 3, "x": 1}])
        publish(last, "t", {"id": 1, "x": 6})
        delete(first, f="1 = 1")
        wait_state(group, "C", [])
        assert bodies(between, "t") == []


def test_replication_34_a_record_expires_at_the_same_time_everywhere(group: Instances, unique: str) -> None:
    """replication.md §26, 34, sow.md §5: the time of the first instance counts. A link that was down changes nothing,
    and the topic's own lifetime of B has no effect on messages without one.
    """
    group.add("A", [To("B", sync=False)], xml=sow_xml(topic_xml("t", "/id", Expiration="enabled")))
    group.add("B", [To("A", sync=False, dial=False)], xml=sow_xml(topic_xml("t", "/id", Expiration="1s")))
    group.proxy("A", "B")
    group.start()
    with group.client("A", unique) as client, group.client("B", unique + "-b") as other:
        began_s = time.time()
        publish(client, "t", {"id": 1}, {"id": 2})
        publish(client, "t", {"id": 3}, e=4)
        publish(client, "t", {"id": 4}, e=0)
        wait_state(group, "B", [{"id": number} for number in range(1, 5)])
        group.proxy("A", "B").cut()
        wait_state(group, "B", [{"id": 1}, {"id": 2}, {"id": 4}])
        assert time.time() - began_s >= 4
        wait_state(group, "A", [{"id": 1}, {"id": 2}, {"id": 4}])
        publish(client, "t", {"id": 5}, e=2)
        wait_state(group, "A", [{"id": 1}, {"id": 2}, {"id": 4}])
        other.subscribe("t", o="oof")
        group.proxy("A", "B").heal()
        # It comes when it has expired already: it is shown, and goes at once.
        came = other.receive_many(2)
        assert [message["c"] for message in came] == ["p", "oof"]
        wait_state(group, "B", [{"id": 1}, {"id": 2}, {"id": 4}])


@pytest.mark.parametrize(
    ("exclude", "check"), [("", "sow"), ("sow", "keys"), ("sow,keys", None)], ids=["none", "sow", "both"]
)
def test_replication_39_a_sow_topic_on_one_side_only(group: Instances, exclude: str, check: str | None) -> None:
    """replication.md §26, 39."""
    group.add("A", [To("B", exclude=exclude)], xml=KEYED)
    group.add("B", [To("A", exclude="cascade")])
    is_valid(group, check)


@pytest.mark.parametrize("exclude", ["", "keys"])
def test_replication_39_another_key(group: Instances, unique: str, exclude: str) -> None:
    """replication.md §26, 39: accepted with `keys`; B then makes its own keys."""
    group.add("A", [To("B", exclude=exclude)], xml=KEYED)
    group.add("B", [To("A", exclude=exclude)], xml=sow_xml(topic_xml("t", "/id", "/n")))
    is_valid(group, None if exclude else "keys")
    if exclude:
        with group.client("A", unique) as client:
            publish(client, "t", {"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 1, "n": 1, "x": 1})
        wait_state(group, "A", [{"id": 1, "n": 1, "x": 1}])
        wait_state(group, "B", [{"id": 1, "n": 2}, {"id": 1, "n": 1, "x": 1}])


def is_valid(group: Instances, check: str | None) -> None:
    """Start a pair; A refuses its destination for a check, or None."""
    group.start(connected=check is None)
    if check is None:
        assert group["A"].log.find("1E-0003") == []
    else:
        group["A"].log.wait_for("1E-0003", f": {check}: ", timeout_s=EQUAL_S)


def test_an_instance_without_the_topic_passes_records_on(group: Instances, unique: str) -> None:
    """replication.md §19, hub and spoke: the hub keeps no values, those behind it do, and make the same keys."""
    around = "replicate,cascade,sow,keys"
    group.add("A", [To("H", exclude=around)], xml=KEYED)
    group.add("H", [To("B", exclude=around)])
    group.add("B", xml=KEYED)
    group.start()
    with group.client("A", unique) as client, group.client("H", unique + "-h") as hub:
        publish(client, "t", {"id": 1}, {"id": 2})
        publish(hub, "t", {"id": 3})
        client.send({"c": "delta_publish", "t": "t"}, b'{"id":1,"y":2}')
        client.flush("persisted")
        wait_state(group, "B", [{"id": 1, "y": 2}, {"id": 2}, {"id": 3}])
        with group.client("B", unique + "-b") as other:
            assert state(client).items() <= state(other).items()
        delete(client, f="/id = 2")
        wait_state(group, "B", [{"id": 1, "y": 2}, {"id": 3}])


@pytest.mark.parametrize("durability", ["persistent", "transient"])
def test_the_states_are_equal_after_kills(group: Instances, unique: str, durability: str) -> None:
    """sow.md §4: publishes, deltas, deletions and lifetimes at A; both instances, and the replication process, die."""
    xml = sow_xml(topic_xml("t", "/id", Durability=durability, Expiration="enabled"))
    pair(group, xml).start()
    chance = random.Random(5)
    for turn, victim in enumerate(("B", "A", "replication", None)):
        with group.client("A", unique) as client:
            for number in range(300):
                key = chance.randrange(40)
                action = chance.random()
                fields: dict[str, Any] = {"e": 3600} if chance.random() < 0.3 else {}
                if action < 0.6:
                    body = {"id": key, "turn": turn, "n": number}
                    client.send({"c": "p", "t": "t", **fields}, json.dumps(body).encode())
                elif action < 0.9:
                    client.send(
                        {"c": "delta_publish", "t": "t", **fields}, json.dumps({"id": key, "d": number}).encode()
                    )
                else:
                    client.send({"c": "sow_delete", "t": "t", "f": f"/id = {key}"})
                if number == 150 and victim == "B":
                    group.kill("B")
                elif number == 150 and victim == "replication":
                    group.kill_replication("B")
            client.flush()
            if victim == "A":
                group.kill("A")
        if victim in ("A", "B"):
            group.launch(victim)
        group.wait_connected("A", "B")
        wait_until(lambda: states_equal(group, "A", "B"), EQUAL_S, lambda: group["B"].excerpt(40))
    with group.client("B", unique + "-b") as client:
        before = state(client)
        assert before
    group.kill("B")
    group.launch("B")
    with group.client("B", unique + "-again") as client:
        assert state(client) == before


def test_records_that_come_back_change_nothing(group: Instances, unique: str) -> None:
    """Three instances, each with a link to each other one: every record arrives twice and more, and counts once. A
    client's newer record stays, although an older one comes again on another way.
    """
    for name in TRIANGLE:
        group.add(name, [To(other) for other in TRIANGLE if other != name], xml=KEYED)
    group.start()
    clients = {}
    for name in TRIANGLE:
        with group.client(name, f"{unique}-{name}") as client:
            for number in range(50):
                publish(client, "t", {"id": f"{name}{number % 10}", "n": number})
            delete(client, f=f"/id = '{name}3'")
            clients[name] = state(client)
    expected = [{"id": f"{name}{key}", "n": 40 + key} for name in TRIANGLE for key in range(10) if key != 3]
    for name in TRIANGLE:
        wait_state(group, name, expected)
    assert states_equal(group, *TRIANGLE)
    with group.client("A", unique + "-watch") as watcher:
        watcher.subscribe("t", o="oof")
        group.kill("C")
        group.launch("C")
        group.wait_connected("C", "A")
        group.wait_connected("C", "B")
        wait_state(group, "C", expected)
        watcher.expect_nothing_for(NEVER_S)
    assert states_equal(group, *TRIANGLE)
