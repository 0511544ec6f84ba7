"""Instances of a pair that are not what they were: one that was started under another name, and one whose log has lost
its durable end.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import Instances, To, two_way
from tests.support.peer import RawClient, bodies_of
from tests.support.server import ServerProcess, numbered_bodies

PATIENCE_S = 60.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _files(server: ServerProcess, prefix: str) -> dict[str, bytes]:
    """The journals of an instance of that name, by name of the file."""
    return {path.name: path.read_bytes() for path in server.journals() if path.name.startswith(f"{prefix}.")}


def test_an_instance_with_another_name_is_a_new_party(group: Instances, tmp_path: Path, unique: str) -> None:
    """replication.md §21 F18: started as C, it ignores the journals of B, and A sends it all: what was published at A,
    and what B had sent to A. Publishers of both go on.
    """
    group.add("A", [To(["B", "C"], label="partner", group="G")])
    group.add("B", [To("A")])
    group.add("C", [To("A")], directory=tmp_path / "B")
    group.start("A", "B", connected=False)
    group.wait_connected("A", "partner")
    group.wait_connected("B", "A")
    here, there = numbered_bodies(300), numbered_bodies(300, 10_001)
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        first.publish_persisted("t", here[:200], 1)
        second.publish_persisted("t", there[:200], 1)
        group.kill("B")
        first.publish_all("t", here[200:], first_sequence=201, a="persisted")
        before = _files(group["B"], "B")
        assert before
        group.start("C")
        group.wait_connected("A", "partner")
        first.wait_for_persisted(300, PATIENCE_S)
    with group.client("C", unique + "-b") as second:
        second.publish_persisted("t", there[200:], 201)
    for name in "AC":
        found = [json.loads(body)["n"] for body in bodies_of(group.log_of(name, 600, timeout_s=PATIENCE_S))]
        assert [number for number in found if number <= 10_000] == [*range(1, 301)]
        assert [number for number in found if number > 10_000] == [*range(10_001, 10_301)]
    assert _files(group["C"], "B") == before
    assert _files(group["C"], "C")


def _epoch(server: ServerProcess) -> str:
    path = server.journal_directory / f"{server.options.name}.identity"
    return str(json.loads(path.read_bytes())["epoch"])


def test_a_source_that_lost_its_durable_end_begins_a_new_epoch(
    group: Instances, tmp_path: Path, unique: str
) -> None:
    """25.67, 25.90; replication_histories.md H-17: A starts with an older copy of its log. It gets back from B what it
    had acknowledged, and what is published then reaches B, although the transaction ids were used before.
    """
    for name, to in two_way():
        group.add(name, to)
    group.start()
    here, there = numbered_bodies(600), numbered_bodies(200, 10_001)
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        first.publish_persisted("t", here[:200], 1)
        second.publish_persisted("t", there[:100], 1)
        group.kill("A")
        old = shutil.copytree(group["A"].journal_directory, tmp_path / "old")
        group.start("A")
        group.wait_connected("B", "A")
        second.publish_persisted("t", there[100:], 101)
    with group.client("A", unique + "-a") as first:
        first.publish_persisted("t", here[200:400], 201)
    epoch = _epoch(group["A"])
    group.kill("A")
    shutil.rmtree(group["A"].journal_directory)
    shutil.move(old, group["A"].journal_directory)
    group.start("A", connected=False)
    (told,) = group["A"].log.wait_for("1E-0021", "instance B has transactions", timeout_s=PATIENCE_S)
    assert told.level == "error"
    group["A"].expect_disturbance()  # the replication process begins anew
    (ended,) = group["A"].log.wait_for("01-0010", "replication", timeout_s=PATIENCE_S)
    assert ended.level == "info"
    assert not group["A"].log.find("01-0002")
    group.wait_connected("A", "B")
    group.wait_connected("B", "A")
    assert _epoch(group["A"]) != epoch
    found = [json.loads(body)["n"] for body in bodies_of(group.log_of("A", 600, timeout_s=PATIENCE_S))]
    assert [number for number in found if number <= 10_000] == [*range(1, 401)]
    with RawClient.tcp(group["A"].port()) as first:
        bookmark = str(first.logon(unique + "-a", o="ack_conflation=10ms")["bm"])
        assert int(bookmark.split("|")[1]) == 400
        first.publish_persisted("t", here[400:], 401)
    for name in "AB":
        found = [json.loads(body)["n"] for body in bodies_of(group.log_of(name, 800, timeout_s=PATIENCE_S))]
        assert [number for number in found if number <= 10_000] == [*range(1, 601)]
        assert [number for number in found if number > 10_000] == [*range(10_001, 10_201)]
    assert len(group["A"].log.find("1E-0021")) == 1
