"""Destinations in the administration interface: metrics, operations, readiness (replication.md §17)."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps._core.shm.memory import MODE_DOWNGRADED
from amps.config import ServerConfig
from amps.server.admin.replication import ReplicationView, seconds_behind
from amps.server.replication_statistics import Peer
from amps.server.runtime import Runtime
from amps.server.services import requests
from amps.server.services.replication_requests import ReplicationRequests
from tests.support.admin import AdminFixture
from tests.support.services import FakeCore

StartAdmin = Callable[..., AdminFixture]

DESTINATIONS = "<Replication>{}</Replication>".format(
    "".join(
        f"<Destination>{label}<SyncType>{kind}</SyncType>{passes}<Topic><Name>a</Name><MessageType>json</MessageType>"
        "</Topic><Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport></Destination>"
        for label, kind, passes in (
            ("<Name>b</Name>", "sync", "<PassThrough>.*</PassThrough>"),
            ("<Name>c</Name><Group>g</Group>", "async", ""),
            ("<Name>1</Name>", "sync", ""),
        )
    )
)
PEER = Peer("b-1", "west", "b:8085", "n!b!sync!amps-replication", "me")


class Replicated:
    """An interface over a runtime whose statistics the test writes; `asked` has the requests."""

    def __init__(self, start_admin: StartAdmin, min_sync: int | None = None) -> None:
        tuning = (
            ""
            if min_sync is None
            else f"<Tuning><Replication><MinSyncDestinations>{min_sync}</MinSyncDestinations></Replication></Tuning>"
        )
        self.runtime: Runtime
        self.refusal: str | None = None
        self.silent = False
        self.now_s = 100.0
        self.admin = start_admin(
            instance_xml=DESTINATIONS + tuning, log=True, replication=lambda config: self._make(config)
        )

    def _make(self, config: ServerConfig) -> ReplicationView:
        self.runtime = Runtime(
            1, True, replication=True, destinations=[one.is_sync for one in config.destinations]
        )
        self.core = FakeCore(self._answer)
        self.core.serve()
        asyncio.get_running_loop().remove_reader(self.core.theirs.fileno())
        requests = ReplicationRequests(self.core.theirs)
        requests.begin(asyncio.get_running_loop())
        self.view = ReplicationView(config, self.runtime, requests, lambda: self.now_s)
        return self.view

    def _answer(self, verb: str, rest: list[object]) -> list[list[object]]:
        if self.silent:
            return []
        return [["error", self.refusal]] if self.refusal else [["ok", rest]]


@pytest.fixture
def replicated(
    start_admin: StartAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Replicated]]:
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(tmp_path))
    made: list[Replicated] = []

    def start(min_sync: int | None = None) -> Replicated:
        made.append(Replicated(start_admin, min_sync))
        return made[-1]

    yield start
    for one in made:
        one.admin.close()  # its event loop still reads the channel
        one.core.close()
        one.runtime.directory.remove()


def test_the_metrics_of_a_destination(replicated: Callable[..., Replicated]) -> None:
    """replication.md §17, 25.38, 25.40: the id is the number; the label is accepted, too."""
    made = replicated()
    first = made.runtime.replication_statistics.destinations[0]
    path = "/amps/instance/replication"
    before = made.admin.get(f"{path}/0.json").json()["amps"]["instance"]["replication"][0]
    assert (before["is_connected"], before["destination_name"], before["connect_time"]) == ("0", "b", "")
    first.connected(PEER, 1_700_000_000 * 10**9)
    first.count(5, 1000)
    first.set_behind(2_500_000_000)
    expected = {
        "id": "0",
        "authenticated_id": "me",
        "bytes_out": "1000",
        "bytes_out_per_sec": "0.00",
        "client_name": "n!b!sync!amps-replication",
        "client_type": "destination",
        "connect_time": "20231114T221320.000000Z",
        "destination_admin_addr": "b:8085",
        "destination_group_name": "west",
        "destination_name": "b-1",
        "disconnect_count": "0",
        "disconnect_time": "",
        "is_connected": "1",
        "messages_out": "5",
        "messages_out_per_sec": "0.00",
        "name": "b",
        "pass_through": "1",
        "replication_type": "sync",
        "seconds_behind": "2.5",
    }
    for name in ("0", "b"):
        assert made.admin.get(f"{path}/{name}.json").json()["amps"]["instance"]["replication"] == [expected]
    second = made.admin.get(f"{path}/c.json").json()["amps"]["instance"]["replication"][0]
    assert (second["id"], second["destination_group_name"], second["pass_through"]) == ("1", "g", "0")
    assert second["replication_type"] == "async"
    # A number is an id before it is a label.
    assert made.admin.get(f"{path}/1/name").body.strip() == "c"
    assert made.admin.get(f"{path}/2/name").body.strip() == "1"
    assert made.admin.get(f"{path}/3").status == 404
    assert len(made.admin.get(f"{path}.json").json()["amps"]["instance"]["replication"]) == 3
    assert "<destination id='0'>" in made.admin.get(f"{path}.xml").body
    assert made.admin.get(f"{path}/0/messages_out.csv").body.endswith(",5\n")


def test_replication_10_the_current_type(replicated: Callable[..., Replicated]) -> None:
    """replication.md §26 10, 16: a downgraded destination is async."""
    made = replicated()
    made.runtime.control.set_destination(0, MODE_DOWNGRADED, 0, 0, 0)
    assert made.admin.get("/amps/instance/replication/b/replication_type").body.strip() == "async"


def test_rates_are_those_of_the_last_interval(replicated: Callable[..., Replicated]) -> None:
    """replication.md §17"""
    made = replicated()
    first = made.runtime.replication_statistics.destinations[0]
    first.count(30, 600)
    made.view.sample()  # no time has passed
    assert made.view.metrics(0)["messages_out_per_sec"] == "0.00"
    made.now_s += 10
    made.view.sample()
    assert made.view.metrics(0)["messages_out_per_sec"] == "3.00"
    assert made.view.metrics(0)["bytes_out_per_sec"] == "60.00"
    first.count(5, 5)
    assert made.view.metrics(0)["messages_out_per_sec"] == "3.00"
    made.now_s += 10
    made.view.sample()
    assert made.view.metrics(0)["messages_out_per_sec"] == "0.50"


@pytest.mark.parametrize(
    ("behind_ns", "text"),
    [
        (0, "0"),
        (999_999_999, "0"),
        (1_000_000_000, "1"),
        (1_000_499_999, "1"),
        (2_500_000_000, "2.5"),
        (120_010_000_000, "120.01"),
        (3_999_999_999, "3.999"),
    ],
)
def test_replication_53_seconds_behind(behind_ns: int, text: str) -> None:
    """replication.md §26 53, 25.38: up to three places, 0 below 1."""
    assert seconds_behind(behind_ns) == text


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("administrator/replication/0/downgrade", ("downgrade", [0])),
        ("administrator/replication/0/upgrade", ("upgrade", [0])),
        ("administrator/replication/c/reconnect", ("reconnect", [1])),
        ("instance/replication/b/downgrade", ("downgrade", [0])),
        ("instance/replication/2/reconnect", ("reconnect", [2])),
    ],
)
def test_replication_16_operations(
    replicated: Callable[..., Replicated], path: str, request_: tuple[str, list[int]]
) -> None:
    """replication.md §26 16, §17: GET, and 200 when it is done."""
    made = replicated()
    assert made.admin.get(f"/amps/{path}.json").json() == {"status": "success"}
    assert made.core.asked == [request_]


def test_replication_13_a_refused_operation(
    replicated: Callable[..., Replicated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """replication.md §26 13, 25.20: the reason is in the answer. No answer is a failure, not a refusal."""
    made = replicated()
    made.refusal = "the destination is configured async"
    answer = made.admin.get("/amps/administrator/replication/c/upgrade")
    assert (answer.status, "configured async" in answer.body) == (409, True)
    assert made.admin.get("/amps/administrator/replication/d/upgrade").status == 404
    made.silent = True
    monkeypatch.setattr(requests, "ANSWER_TIMEOUT_S", 0.1)
    assert made.admin.get("/amps/administrator/replication/c/upgrade").status == 500
    assert made.admin.get("/amps/instance/replication/c/upgrade").status == 404


def test_an_instance_without_a_minimum_is_ready(replicated: Callable[..., Replicated]) -> None:
    """replication.md 25.54"""
    answer = replicated().admin.get("/amps/instance/ready")
    assert (answer.status, answer.body) == (200, "ready\n")


def test_an_instance_is_ready_with_enough_sync_destinations(replicated: Callable[..., Replicated]) -> None:
    """replication.md 25.54: those that are connected and in sync mode."""
    made = replicated(2)
    first, second, third = made.runtime.replication_statistics.destinations
    for one in (first, second):
        one.connected(PEER, 1)
    answer = made.admin.get("/amps/instance/ready")
    assert answer.status == 503
    assert "not ready: 1 destinations are in sync mode and connected, MinSyncDestinations is 2" in answer.body
    third.connected(PEER, 1)
    assert made.admin.get("/amps/instance/ready").status == 200
    made.runtime.control.set_destination(2, MODE_DOWNGRADED, 0, 0, 0)
    assert made.admin.get("/amps/instance/ready").status == 503


def test_an_instance_without_destinations_shows_none(start_admin: StartAdmin) -> None:
    assert start_admin().get("/amps/instance/replication").status == 404
