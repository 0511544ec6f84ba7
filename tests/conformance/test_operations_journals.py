"""Journals of a running server: archived, compressed and removed by actions and over HTTP.

These are operations.md §5.4, §9.3 and transaction_log.md §13, §14. They need the core's part of the work.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.admin import get
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until
from tests.support.services import action, do, on

COUNT = 230
PADDING_BYTES = 100_000  # so that two journals of 10 MB are full, and a third one is begun
INSTANCE = "/amps/instance/transaction_log"
ADMINISTRATOR = "/amps/administrator/transaction_log/journals"


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def started(start_server: StartServer, port: int, *actions: str) -> ServerProcess:
    """A server with two full journals and one in use."""
    xml = f"<Admin><InetAddr>{port}</InetAddr></Admin>"
    if actions:
        xml += f"<Actions>{''.join(actions)}</Actions>"
    server = start_server(
        log_topics=("^L/",),
        journal_xml="<JournalArchiveDirectory>archive</JournalArchiveDirectory>",
        instance_xml=xml,
    )
    with Peers("writer") as peers:
        writer = peers.logged_on(server)
        writer.publish_persisted("L/a", numbered_bodies(COUNT, padding_bytes=PADDING_BYTES), 1)
    return server


def journals(port: int) -> list[dict[str, Any]]:
    log = get(port, f"{INSTANCE}.json").json()["amps"]["instance"]["transaction_log"]
    found: list[dict[str, Any]] = log["journals"]
    return found


def full_journals(port: int) -> list[str]:
    listed = get(port, f"{ADMINISTRATOR}.json").json()["amps"]["administrator"]["transaction_log"]["journals"]
    return [journal["id"] for journal in listed]


def replayed(server: ServerProcess, peers: Peers, count: int) -> list[int]:
    reader = peers.logged_on(server)
    reader.subscribe("L/a", bm="0")
    return [json.loads(message.body)["n"] for message in reader.receive_published(count, 60)]


def wait_for(server: ServerProcess, condition: Any, what: str) -> None:
    wait_until(condition, 30, lambda: f"{what}: {[str(path) for path in server.directory.glob('*/*')]}")


def names(server: ServerProcess, directory: str, pattern: str) -> list[str]:
    return sorted(path.name for path in (server.directory / directory).glob(pattern))


def test_transaction_log_65_the_log_over_http(start_server: StartServer, peers: Peers, port: int) -> None:
    """transaction_log.md §22 65: journals with name, archived, compressed; `max_timestamp` advances with a publish."""
    server = started(start_server, port)
    listed = journals(port)
    assert [journal["id"] for journal in listed[:3]] == [f"Test.000000000{n}.journal" for n in range(3)]
    assert {(journal["is_archived"], journal["is_compressed"]) for journal in listed} == {("false", "false")}
    assert listed[0]["min_timestamp"] <= listed[0]["max_timestamp"] <= listed[1]["min_timestamp"]
    before = get(port, f"{INSTANCE}/max_timestamp").body
    writer = peers.logged_on(server)
    writer.publish_persisted("L/a", [b"{}"], 1)
    assert get(port, f"{INSTANCE}/max_timestamp").body > before
    assert get(port, f"{INSTANCE}/min_timestamp").body == listed[0]["min_timestamp"]
    # The maxima are of a group commit: at most one batch of the publisher, and at most 4 MiB plus the messages of one
    # turn.
    assert 0 < int(get(port, f"{INSTANCE}/write_latency/maximum").body) < 60_000_000
    assert PADDING_BYTES < int(get(port, f"{INSTANCE}/write_size/maximum").body) <= 24 << 20


def test_transaction_log_60_journals_over_http(start_server: StartServer, peers: Peers, port: int) -> None:
    """transaction_log.md §22 60: only full journals are listed; an operation applies to the named one and all older
    ones.
    """
    server = started(start_server, port)
    assert full_journals(port) == ["Test.0000000000.journal", "Test.0000000001.journal"]
    assert get(port, f"{ADMINISTRATOR}/Test.0000000002.journal/remove").status == 404

    assert get(port, f"{ADMINISTRATOR}/Test.0000000000.journal/compress").status == 200
    wait_for(server, lambda: names(server, "journal", "*.journal.*"), "not compressed")
    wait_for(server, lambda: journals(port)[0]["is_compressed"] == "true", "not shown as compressed")
    assert journals(port)[1]["is_compressed"] == "false"
    assert replayed(server, peers, COUNT) == list(range(1, COUNT + 1))

    newest = full_journals(port)[-1]
    assert get(port, f"{ADMINISTRATOR}/{newest}/archive").status == 200
    wait_for(server, lambda: len(names(server, "archive", "*.journal*")) == 2, "not archived")
    wait_for(server, lambda: [j["is_archived"] for j in journals(port)][:2] == ["true", "true"], "not shown")
    assert replayed(server, peers, COUNT) == list(range(1, COUNT + 1))

    newest = full_journals(port)[-1]
    assert get(port, f"{ADMINISTRATOR}/{newest}/remove").status == 200
    wait_for(server, lambda: not names(server, "archive", "*.journal*"), "not removed")
    wait_for(server, lambda: full_journals(port) == [], "still listed")
    (first, *_) = replayed(server, peers, 5)
    assert first > 1


def test_transaction_log_13_actions_on_a_schedule(start_server: StartServer, peers: Peers, port: int) -> None:
    """transaction_log.md §13.1, §13.5: archive, compress and remove by age, in one action."""
    ages = {"archive-journal": "1s", "compress-journal": "2s", "remove-journal": "1d"}
    steps = [do(name, Age=age) for name, age in ages.items()]
    server = started(start_server, port, action(on("schedule", Every="500ms", Name="journals"), *steps))
    wait_for(server, lambda: len(names(server, "archive", "*.journal.*")) == 2, "not archived and compressed")
    assert names(server, "journal", "*.journal")[0] == "Test.0000000002.journal"
    assert replayed(server, peers, COUNT) == list(range(1, COUNT + 1))
    assert not server.log.find("29-0002")
    assert server.log.find("29-0004", "journals to archive: ")
    server.restart()
    assert replayed(server, peers, COUNT) == list(range(1, COUNT + 1))


def test_operations_68_journals_by_path(start_server: StartServer, peers: Peers, port: int) -> None:
    """operations.md §13 68: `AGE` of the request; an invalid interval archives no journal."""
    archive = action(on("admin", Path="arch", RequiredParameter="AGE"), do("archive-journal", Age="{{AGE}}"))
    server = started(start_server, port, archive)
    path = "/amps/administrator/actions/arch"
    assert get(port, path).status == 400
    assert get(port, f"{path}?AGE=LastThursday").status == 500
    assert get(port, f"{path}?AGE=1d").status == 200
    assert names(server, "archive", "*.journal*") == []
    assert get(port, f"{path}?AGE=1ns").status == 200
    wait_for(server, lambda: len(names(server, "archive", "*.journal*")) == 2, "not archived")
