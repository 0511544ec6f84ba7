"""Pairs of servers with differing configurations, wrong credentials or refused topics (replication.md §15, §16)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import Instances, Sent, To
from tests.support.ports import release_port, reserve_port
from tests.support.server import loaded_module_xml, module_xml, wait_until

FILTERED = (
    "<SOW><Queue><Name>q</Name><MessageType>json</MessageType><UnderlyingTopic>t</UnderlyingTopic>"
    "<Filter>/x = 1</Filter></Queue></SOW>"
)
QUEUE = "<SOW><Queue><Name>q</Name><MessageType>json</MessageType><UnderlyingTopic>{}</UnderlyingTopic></Queue></SOW>"
REFUSED_S = 30.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    made = Instances(tmp_path)
    yield made
    made.close()


@pytest.fixture
def admin_port() -> Iterator[int]:
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def refused(group: Instances, check: str, name: str = "A", peer: str = "B") -> str:
    """Start a pair, wait until one destination is refused for a check; return the text. Local service goes on."""
    group.start(connected=False)
    (record, *_) = group[name].log.wait_for("1E-0003", f": {check}: ", timeout_s=REFUSED_S)
    group[peer].log.wait_for("1E-0008", f"instance {name} tells what to change", timeout_s=REFUSED_S)
    assert not group.is_connected(name, peer)
    with group.client(name, "local") as client:
        client.subscribe("other")
        client.publish("other", b'{"a":1}')
        assert client.receive_published(1)[0].body == b'{"a":1}'
    return record.text


def accepted(group: Instances) -> None:
    group.start()
    assert group["A"].log.find("1E-0003") == []


@pytest.mark.parametrize("exclude", ["", "txlog,replicate,cascade"])
def test_replication_37_txlog(group: Instances, admin_port: int, exclude: str) -> None:
    """replication.md §26 37: the topic is absent from B's log."""
    admin = f"<Admin><InetAddr>127.0.0.1:{admin_port}</InetAddr></Admin>"
    group.add("A", [To("B", exclude=exclude)], xml=admin)
    group.add("B", topics=("u",))
    if exclude:
        accepted(group)
    else:
        text = refused(group, "txlog")
        assert "B does not record it; add a Topic for it to TransactionLog there" in text
    is_connected = get(admin_port, "/amps/instance/replication/B/is_connected").body.strip()
    assert is_connected == ("1" if exclude else "0")


@pytest.mark.parametrize("exclude", ["", "replicate,cascade"])
def test_replication_38_replicate(group: Instances, exclude: str) -> None:
    """replication.md §26 38: B has no destination back to A."""
    group.add("A", [To("B", exclude=exclude)])
    group.add("B")
    if exclude:
        accepted(group)
    else:
        assert "B has no Replication/Destination for A" in refused(group, "replicate")


@pytest.mark.parametrize("exclude", ["", "replicate_filter"])
def test_replication_40_replicate_filter(group: Instances, exclude: str) -> None:
    """replication.md §26 40: the filter back is another one."""
    group.add("A", [To("B", topics=[Sent("t", "/x = 1")], exclude=exclude)])
    group.add("B", [To("A", topics=[Sent("t", "/x = 2")], exclude="replicate_filter")])
    if exclude:
        accepted(group)
    else:
        refused(group, "replicate_filter")


@pytest.mark.parametrize("exclude", ["", "cascade"])
def test_replication_40_cascade(group: Instances, exclude: str) -> None:
    """replication.md §26 40: B excludes `replicate` towards C, A does not."""
    group.add("A", [To("B", exclude=exclude)])
    group.add("B", [To("A"), To("C", exclude="replicate,cascade")])
    group.add("C")
    if exclude:
        accepted(group)
    else:
        assert "B excludes replicate for t to its Destination C" in refused(group, "cascade")
        group.wait_connected("B", "C")


@pytest.mark.parametrize(
    ("check", "there"),
    [("queue", ""), ("queue_underlying", QUEUE.format("u")), ("queue_underlying", FILTERED)],
)
def test_replication_41_checks_of_queues(group: Instances, check: str, there: str) -> None:
    """replication.md §26 41: a queue on A only, and queues with different underlying topics or filters."""
    topics = ("t", "u", "q")
    group.add("A", [To("B")], topics=topics, xml=QUEUE.format("t"))
    group.add("B", [To("A")], topics=topics, xml=there)
    refused(group, check)


@pytest.mark.parametrize("exclude", ["", "queue_passthrough,cascade"])
def test_replication_41_queue_passthrough(group: Instances, exclude: str) -> None:
    """replication.md §26 41: B does not pass messages of A's group on to C."""
    topics = ("t", "q")
    xml = QUEUE.format("t")
    group.add("A", [To("B", exclude=exclude)], topics=topics, xml=xml, group="GA")
    to_c = To("C", pass_through="^X$", exclude="queue_passthrough")
    group.add("B", [To("A"), to_c], topics=topics, xml=xml, group="GB")
    group.add("C", [To("B")], topics=topics, xml=xml, group="GC")
    if exclude:
        group.start(connected=False)
        group.wait_connected("A", "B")
    else:
        assert "let PassThrough there match GA" in refused(group, "queue_passthrough")


def test_replication_42_the_underlying_topic_of_local_queues_replicates(group: Instances) -> None:
    """replication.md §26 42: each instance delivers its own copy."""
    local = QUEUE.format("t").replace("Queue>", "LocalQueue>")
    for name, peer in (("A", "B"), ("B", "A")):
        group.add(name, [To(peer)], xml=local)
    group.start()
    with group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1, a="persisted")
        publisher.wait_for_persisted(1)
    for name in ("A", "B"):
        with group.client(name, f"consumer-{name}") as consumer:
            consumer.subscribe("q")
            assert consumer.receive_published(1)[0].body == b'{"a":1}'


def test_replication_48_a_wrong_password_is_refused_and_retried(group: Instances, tmp_path: Path) -> None:
    """replication.md §26 48: a corrected file is used at the next attempt, and the backlog is delivered."""
    password = tmp_path / "password"
    authenticator = module_xml(
        "Authenticator", "amps-default-authenticator-module", User="", PasswordFileName=str(password)
    )
    needs_user = module_xml(
        "Authentication", "amps-default-authentication-module", RequireUsername="true", AllowSpoofing="true"
    )
    group.add("A", [To("B", exclude="replicate,cascade", transport_xml=authenticator)])
    group.add("B", replication_xml=needs_user)
    group.start(connected=False)
    group["A"].log.wait_for("1E-0011", "password", timeout_s=REFUSED_S)
    with group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1)
    password.write_text("word\n")
    group["A"].log.wait_for("1E-0010", "AUTH", timeout_s=REFUSED_S)
    group["B"].log.wait_for("1E-0015", "AUTH", timeout_s=REFUSED_S, count=2)
    assert not group.is_connected("A", "B")
    with_user = authenticator.replace("<User></User>", "<User>me</User>")
    group["A"].stop()
    group.change("A", to=[To("B", exclude="replicate,cascade", transport_xml=with_user)])
    group.start("A")
    assert group.log_of("B", 1)[0].body == b'{"a":1}'


def test_replication_48_an_exec_authenticator_without_a_command_stops_the_start(group: Instances) -> None:
    """replication.md §26 48, §15"""
    xml = (
        f"<Modules>{loaded_module_xml('exec', 'libamps_exec_authenticator.so')}</Modules>"
        + module_xml("Authenticator", "exec", UserName="u")
    )
    server = group.add("A", xml=xml)
    options = {key: value for key, value in vars(server.options).items() if key != "instance_xml"}
    server.options = type(server.options)(**options, instance_xml=xml)
    assert "Command is required by the module exec" in server.start_refused()


def test_replication_49_a_refused_topic_does_not_stop_the_link(group: Instances) -> None:
    """replication.md §26 49, 25.23: B takes `u1`, not `t`, and the link stays up."""
    simple = f"<Modules>{loaded_module_xml('simple', 'libamps_simple_access_entitlement.so')}</Modules>"
    only_u = module_xml("Entitlement", "simple", AllowedTopics="^u")
    topics = ("t", "u1")
    group.add("A", [To("B", exclude="replicate,cascade")], topics=topics)
    group.add("B", topics=topics, replication_xml=only_u, xml=simple)
    group.start()
    with group.client("A", "publisher") as publisher:
        publisher.publish("t", b'{"a":1}', s=1)
        publisher.publish("u1", b'{"a":2}', s=2, a="persisted")
        publisher.wait_for_persisted(2)
    assert [one.body for one in group.log_of("B", 1, "u1")] == [b'{"a":2}']
    group["B"].log.wait_for("1E-0007", "not entitled to replicate the topic 't'")
    with group.reader("B", "t") as reader, group.client("B", "p2") as publisher:
        publisher.publish("t", b'{"a":3}', s=1)
        assert reader.receive_published(1)[0].body == b'{"a":3}'
    wait_until(lambda: group.is_connected("A", "B"), 5.0, "the link is down")
