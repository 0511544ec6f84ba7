"""Links: who connects to whom, failover lists, refusals (replication.md §6, §24, §26, 43 to 46)."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.instances import REPLICATION, Instances, To
from tests.support.peer import PeerError, RawClient
from tests.support.server import ServerProcess, StartServer, Transport, numbered_bodies, wait_until

LOOSE = "replicate,cascade"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _one_way(group: Instances, **options: Any) -> None:
    group.add("A", [To("B", exclude=LOOSE, **options)])
    group.add("B")


def _publish(group: Instances, client: str, count: int, first: int = 1) -> None:
    with group.client("A", client) as publisher:
        publisher.publish_persisted("t", numbered_bodies(count, first), 1)


def _hello(**changes: object) -> dict[str, object]:
    return {
        "proto": [1],
        "name": "X",
        "group": "G",
        "instance_uuid": "0-1",
        "journal_epoch": "e",
        "run": "r",
        "destination": "B",
        "client_name": "X!B!sync!amps-replication",
        "sync": True,
        "ack_interval_ms": 50,
        "expect": {"name": "B", "group": None},
        **changes,
    }


def _frame(kind: int, content: object, flags: int = 0) -> bytes:
    payload = json.dumps(content).encode()
    return struct.pack(">IBB", len(payload) + 2, kind, flags) + payload


def _all_of(sock: socket.socket, timeout_s: float = 20) -> bytes:
    sock.settimeout(timeout_s)
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def _bye(data: bytes) -> str:
    """The code of the last frame, a BYE."""
    kind = 0
    payload = b""
    while data:
        length, kind = struct.unpack_from(">IB", data)
        payload, data = data[6 : 4 + length], data[4 + length :]
    assert kind == 0x1F, data
    code: str = json.loads(payload)["code"]
    return code


def _say(server: ServerProcess, *frames: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port(REPLICATION))) as sock:
        sock.sendall(b"".join(frames))
        return _all_of(sock)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"proto": [7]}, "VERSION"),
        ({"name": "B"}, "DUP_NAME"),
        ({"expect": {"name": "C"}}, "WRONG_PEER"),
        ({"expect": {"group": "H"}}, "WRONG_PEER"),
        ({"name": None}, "PROTOCOL"),
        ({"name": ""}, "PROTOCOL"),
    ],
)
def test_hello_is_checked(group: Instances, changes: dict[str, object], code: str) -> None:
    """Behaviour 44; replication.md §24.2."""
    server = group.add("B")
    group.start()
    assert _bye(_say(server, _frame(1, _hello(**changes)))) == code


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 0xFFFFFFFF) + b"x",
        struct.pack(">IBB", 2, 0x10, 0),
        struct.pack(">IBB", 2, 0x77, 0),
        struct.pack(">IBB", 2, 1, 0),
        struct.pack(">IBB", 2, 1, 1),
        _frame(0x19, {"name": "X", "counter": 1}),
        _frame(1, _hello()) + _frame(5, {}),
        _frame(1, _hello()) + _frame(1, _hello()),
        _frame(1, _hello()) + _frame(0x10, {}, 2),
    ],
)
def test_garbage_at_the_replication_port_ends_that_connection_alone(
    group: Instances, unique: str, data: bytes
) -> None:
    """Any frame that is illegal in its state: BYE PROTOCOL (replication.md §24.1)."""
    _one_way(group)
    group.start()
    assert _bye(_say(group["B"], data)) == "PROTOCOL"
    _publish(group, unique, 10)
    assert len(group.log_of("B", 10)) == 10


def test_a_silent_stranger_is_disconnected(group: Instances) -> None:
    server = group.add("B")
    group.start()
    assert _bye(_say(server)) == "TIMEOUT"


def _is_open(sock: socket.socket) -> bool:
    """Whether a connection goes on, without a BYE."""
    sock.setblocking(False)
    try:
        sock.recv(1)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_strangers_do_not_keep_instances_out(group: Instances, unique: str) -> None:
    """At most 64 connections may be without a logon; the oldest of them gives way."""
    _one_way(group)
    server = group["B"]
    proxy = group.proxy("A", "B")
    group.start()
    proxy.cut()
    strangers = [socket.create_connection(("127.0.0.1", server.port(REPLICATION))) for _ in range(100)]
    try:
        time.sleep(0.2)
        proxy.heal()
        _publish(group, unique, 3)
        assert any(map(_is_open, strangers)), "nobody had to wait until they were given up"
    finally:
        for stranger in strangers:
            stranger.close()


def test_clients_and_instances_cannot_use_each_others_transports(group: Instances) -> None:
    """Behaviour 43."""
    server = group.add("B")
    group.start()
    with pytest.raises((PeerError, OSError)), RawClient.tcp(server.port(REPLICATION), timeout_s=15) as client:
        client.logon("client")
    with socket.create_connection(("127.0.0.1", server.port())) as sock:
        sock.sendall(_frame(1, _hello()))
        assert _all_of(sock)[4:5] != b"\x02"


def test_a_port_in_use_is_an_error_at_start(make_server: StartServer) -> None:
    """Behaviour 43."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = make_server(
            name="B",
            log_topics=["t"],
            instance_xml="",
            transports=[
                Transport(),
                Transport(
                    name=REPLICATION,
                    type=REPLICATION,
                    message_type=None,
                ),
            ],
        )
        server._ports[REPLICATION] = port
        assert "cannot listen" in server.start_refused()
        server._ports.pop(REPLICATION)


def test_a_destination_of_another_group_is_not_connected(group: Instances) -> None:
    """Behaviour 44."""
    group.add("A", [To("B", group="X", exclude=LOOSE)])
    group.add("B")
    group.start(connected=False)
    group["A"].log.wait_for("1E-0010", "WRONG_PEER", "group 'X'")
    assert not group.is_connected("A", "B")


def test_a_destination_with_only_a_name_may_mean_a_group(group: Instances, unique: str) -> None:
    """Behaviour 44, decision 25.1."""
    group.add("A", [To("B", label="G", exclude=LOOSE)])
    group.add("B")
    group.start()
    _publish(group, unique, 3)
    assert "A!G!sync" in group["A"].log.find("1E-0001")[0].text


def test_an_instance_does_not_replicate_to_itself(group: Instances) -> None:
    group.add("A", [To("A", exclude=LOOSE)])
    group.start(connected=False)
    group["A"].log.wait_for("1E-0010", "SELF")


def test_a_destination_with_a_name_beside_its_group_is_for_that_instance(group: Instances, unique: str) -> None:
    """Decision 25.91: another instance of the group that connects does not take the place of the sync partner."""
    to_both = [To(name, name == "B", label=name, group="G", exclude=LOOSE) for name in "BC"]
    group.add("A", to_both)
    group.add("B", [To("A", label="A", group="G", exclude=LOOSE)])
    group.add("C", [To("A", label="A", group="G", exclude=LOOSE)])
    group.start("A", connected=False)
    group.start("C")
    group.wait_connected("A", "C")
    assert group["A"].log.find("1E-0001", "A!C@G!async", "instance C")
    with group.client("A", unique) as client:
        client.publish_all("t", numbered_bodies(3), first_sequence=1, a="persisted")
        group.log_of("C", 3)
        client.expect_silence()
        group.start("B")
        client.wait_for_persisted(3, 30)
    assert group["A"].log.find("1E-0001", "A!B@G!sync", "instance B")
    assert len(group.log_of("B", 3)) == 3


@pytest.mark.parametrize("first", ["A", "B"])
def test_a_pair_whose_destinations_have_labels_shares_one_connection(
    group: Instances, unique: str, first: str
) -> None:
    """Decision 25.91: a label that is no instance's name. Who answers at the address is the partner, whoever dialled
    the connection that stays.
    """
    group.add("A", [To("B", label="onward", group="G", exclude=LOOSE)])
    group.add("B", [To("A", label="back", group="G", exclude=LOOSE)])
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start(first, connected=False)
    time.sleep(0.3)
    group.start("B" if first == "A" else "A", connected=False)
    for name in "AB":
        with group.client(name, f"{unique}-{name}") as client:
            client.publish_persisted("t", numbered_bodies(10), 1)
    assert len(group.log_of("A", 20)) == len(group.log_of("B", 20)) == 20
    wait_until(lambda: sum(proxy.open_connections for proxy in proxies) == 1, 10, "not one connection")


def test_the_list_of_addresses_is_searched_from_the_top(group: Instances, unique: str) -> None:
    """Behaviour 45, decision 25.27."""
    group.add("A", [To(["L1", "L2"], label="", group="L", exclude=LOOSE)])
    for name in ("L1", "L2"):
        group.add(name, group="L")
    group.start("L2")
    group.start("A")
    _publish(group, unique, 10)
    group.log_of("L2", 10)
    group.start("L1")
    _publish(group, unique + "-2", 10, 100)
    group.log_of("L2", 20)
    with group.reader("L1") as reader:
        reader.expect_silence()
    group.kill("L2")
    group["A"].log.wait_for("1E-0001", "instance L1", timeout_s=30)
    assert len(group.log_of("L1", 20)) == 20


def test_a_destination_without_an_address_waits_for_the_other_side(group: Instances, unique: str) -> None:
    """Behaviour 46."""
    group.add("A", [To("B")])
    group.add("B", [To("A", dial=False)])
    proxy = group.proxy("A", "B")
    group.start("B", connected=False)
    time.sleep(0.5)
    assert not group["B"].log.find("1E-0011")
    group.start("A")
    group.wait_connected("B", "A")
    with group.client("B", unique) as client:
        client.publish_persisted("t", numbered_bodies(10), 1)
    assert len(group.log_of("A", 10)) == 10
    assert proxy.open_connections == 1
    assert proxy.connections == 1


def test_both_directions_come_back_over_one_connection_after_a_cut(group: Instances, unique: str) -> None:
    """Replication.md §24.9: if both dial at once, one connection stays."""
    for name, other in ("AB", "BA"):
        group.add(name, [To(other)])
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    for round_ in range(5):
        for proxy in proxies:
            proxy.cut()
        for proxy in proxies:
            proxy.heal()
        for name in "AB":
            with group.client(name, f"{unique}-{name}-{round_}") as client:
                client.publish_persisted("t", numbered_bodies(10, 100 * round_), 1)
    assert len(group.log_of("A", 100)) == len(group.log_of("B", 100)) == 100
    time.sleep(0.3)
    assert sum(proxy.open_connections for proxy in proxies) == 1


def test_two_destinations_must_not_lead_to_one_instance(group: Instances, unique: str) -> None:
    """Decision 25.41."""
    group.add("A", [To("B", exclude=LOOSE), To("B", label="", group="G", sync=False, exclude=LOOSE)])
    group.add("B")
    group.start(connected=False)
    log = group["A"].log
    wait_until(lambda: bool(log.search("DUPLICATE_LINK")), 30, "both destinations are connected")
    wait_until(lambda: bool(log.find("1E-0001")), 30, "no destination is connected")
    assert len(group["A"].log.find("1E-0001")) == 1
    assert group.is_connected("A", "B") != group.is_connected("A", "G")
    with group.client("A", unique) as client:
        client.publish_all("t", numbered_bodies(3), first_sequence=1)
    assert len(group.log_of("B", 3)) == 3


def test_a_refused_flow_does_not_disturb_the_other_one(group: Instances, unique: str) -> None:
    """Replication.md §24.4: B may not send to A, because A records no topic `u`; A sends to B."""
    group.add("A", [To("B", exclude=LOOSE)])
    group.add("B", [To("A", topics=["t", "u"], dial=False)], topics=("t", "u"))
    group.start(connected=False)
    group.wait_connected("A", "B")
    group["B"].log.wait_for("1E-0003", "txlog")
    _publish(group, unique, 3)
    group.log_of("B", 3)


def test_flows_pass_over_tls_and_certificates_are_checked(
    group: Instances, unique: str, authority: Authority, tmp_path: Path
) -> None:
    """Replication.md §5: an untrusted certificate is refused before the logon."""
    server, other = authority.issue("replication-server"), Authority(tmp_path / "other", "other authority")
    tls = f"<Certificate>{server.certificate}</Certificate><PrivateKey>{server.private_key}</PrivateKey>"

    def to(ca: Path) -> To:
        return To(
            "B",
            exclude=LOOSE,
            type="amps-replication-secure",
            transport_xml=f"<VerifyClient>true</VerifyClient><CAFile>{ca}</CAFile>",
        )

    group.add("A", [to(other.certificate)])
    group.add(
        "B",
        accepts=False,
        transports=[
            Transport(),
            Transport(
                name=REPLICATION,
                type="amps-replication-secure",
                message_type=None,
                extra_xml=tls,
            ),
        ],
    )
    group.start(connected=False)
    group["A"].log.wait_for("1E-0011", "certificate")
    group["A"].stop()
    group.change("A", to=[to(authority.certificate)])
    group.start("A")
    _publish(group, unique, 100)
    assert len(group.log_of("B", 100)) == 100


@pytest.mark.parametrize(("sealed", "plain"), [("A", "B"), ("B", "A")])
@pytest.mark.parametrize("accepts_tls", [True, False])
def test_a_destination_with_tls_uses_no_link_without(
    group: Instances, unique: str, authority: Authority, sealed: str, plain: str, accepts_tls: bool
) -> None:
    """24.9, 25.95: two instances share a link, but what is to be encrypted is, whoever has dialled."""
    server = authority.issue("replication-server")
    tls = f"<Certificate>{server.certificate}</Certificate><PrivateKey>{server.private_key}</PrivateKey>"
    ca = f"<CAFile>{authority.certificate}</CAFile>"
    secure = "amps-replication-secure"
    group.add(sealed, [To(plain, sync=False, exclude=LOOSE, type=secure, transport_xml=ca)])
    group.add(
        plain,
        [To(sealed, sync=False, exclude=LOOSE)],
        accepts=not accepts_tls,
        transports=[Transport(), Transport(name=REPLICATION, type=secure, message_type=None, extra_xml=tls)]
        if accepts_tls
        else [Transport()],
    )
    group.start(connected=False)
    with group.client(plain, unique) as publisher:
        publisher.publish_persisted("t", numbered_bodies(5), 1)
    group.log_of(sealed, 5)
    with group.client(sealed, unique + "-2") as publisher:
        publisher.publish_persisted("t", numbered_bodies(5), 1)
    if accepts_tls:
        assert len(group.log_of(plain, 10)) == 10
    else:
        group[sealed].log.wait_for("1E-0011", "does not speak TLS")
        with group.client(plain, unique) as publisher:
            publisher.publish_persisted("t", numbered_bodies(5, 6), 6)
        group.log_of(sealed, 15)
        assert [message.body for message in group.log_of(plain, 10)] == numbered_bodies(10), "its own messages only"
