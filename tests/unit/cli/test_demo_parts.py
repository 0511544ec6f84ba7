"""The parts of `amps demo`: its input and its proof."""

import zipfile
from pathlib import Path

import orjson
import pytest

from amps.cli.demo import flights as flights_module
from amps.cli.demo.flights import FlightsMissing, load
from amps.cli.demo.proof import Ledger, compare
from amps.cli.demo.single import kill_points

TABLE = """year,dep_time,carrier,tailnum,time_hour
2013,517,UA,N14228,2013-01-01T10:00:00Z
2013,NA,AA,NA,2013-01-01T10:00:00Z
2013,-5,UA,N24211,2013-01-01T11:00:00Z
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", TABLE)
    return path


def test_flights_become_typed_json_on_the_topic_of_their_airline(table: Path) -> None:
    messages = [(topic, orjson.loads(body)) for topic, body in load(path=table)]
    assert messages[0] == (
        "flights/UA",
        {
            "id": 0,
            "year": 2013,
            "dep_time": 517,
            "carrier": "UA",
            "tailnum": "N14228",
            "time_hour": "2013-01-01T10:00:00Z",
        },
    )
    assert messages[1][0] == "flights/AA"
    assert messages[1][1]["dep_time"] is None
    assert messages[1][1]["tailnum"] is None
    assert [body["id"] for _, body in messages] == [0, 1, 2]


def test_a_limit_takes_the_first_flights(table: Path) -> None:
    assert len(load(2, table)) == 2
    assert len(load(None, table)) == 3


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_module, "PACKAGE", "no_such_package_of_flights")
    with pytest.raises(FlightsMissing, match="pip install"):
        load()


def source() -> list[tuple[str, bytes]]:
    return [(f"t/{number % 2}", b'{"id":%d}' % number) for number in range(10)]


def test_the_proof_holds_for_the_same_messages() -> None:
    proof = compare(Ledger(source()), Ledger(source()))
    assert proof.holds
    assert proof.complaints() == []
    assert [(topic.topic, topic.published, topic.replayed) for topic in proof.topics] == [
        ("t/0", 5, 5),
        ("t/1", 5, 5),
    ]


def test_the_proof_names_missing_messages() -> None:
    replayed = source()
    del replayed[3], replayed[5]
    proof = compare(Ledger(source()), Ledger(replayed))
    assert not proof.holds
    assert proof.missing == [3, 6]
    assert any("2 messages missing: 3, 6" in complaint for complaint in proof.complaints())


def test_the_proof_names_messages_delivered_twice() -> None:
    replayed = source()
    replayed.insert(5, replayed[4])
    proof = compare(Ledger(source()), Ledger(replayed))
    assert not proof.holds
    assert proof.doubled == [4]


@pytest.mark.parametrize(("first", "second"), [(2, 3), (2, 4)])
def test_the_proof_fails_on_a_changed_order(first: int, second: int) -> None:
    replayed = source()
    replayed[first], replayed[second] = replayed[second], replayed[first]
    proof = compare(Ledger(source()), Ledger(replayed))
    assert not proof.holds
    assert not proof.in_order
    assert not proof.missing


def test_the_proof_fails_on_one_changed_byte() -> None:
    replayed = source()
    replayed[4] = (replayed[4][0], b'{"id": 4}')
    proof = compare(Ledger(source()), Ledger(replayed))
    assert not proof.holds
    assert [topic.topic for topic in proof.topics if not topic.holds] == ["t/0"]


def test_a_topic_of_its_own_in_the_replay_is_a_failure() -> None:
    proof = compare(Ledger(source()), Ledger([*source(), ("t/2", b'{"id":10}')]))
    assert not proof.holds


@pytest.mark.parametrize("kills", [0, 1, 5])
def test_kill_points_lie_inside_and_rise(kills: int) -> None:
    import random

    for seed in range(50):
        points = kill_points(10_000, kills, random.Random(seed))
        assert len(points) == kills
        assert points == sorted(points)
        assert all(0 < point < 10_000 for point in points)
