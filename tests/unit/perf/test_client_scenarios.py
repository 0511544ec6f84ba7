"""The scenarios about client libraries: with this project's client, and their checks with sessions that fail."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from perf import report
from perf.cli import wanted_peers
from perf.clients.amps_asyncio import AmpsAsyncClient
from perf.clients.amps_blocking import AmpsClient, AmpsFileClient
from perf.clients.base import BODY_BYTES, Case, ClientPeer, Session, bodies, check
from perf.clients.process import ClientProcess, Work
from perf.clients.profiling import summary
from perf.clients.redis import entries_of
from perf.measurement import Settings
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS, chosen_peers, chosen_scenarios

COUNT = 2_000


class ToySession(Session):
    """Receives what it should, or what its mode says."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def publish(self, bodies: Sequence[bytes]) -> None:
        if self.mode == "failing":
            raise RuntimeError("no such luck")
        if self.mode == "dying":
            raise SystemExit(3)

    def listen(self, count: int) -> None:
        self.count = count

    def heard(self) -> list[bytes]:
        return self.replay(self.count)

    def replay(self, count: int) -> list[bytes]:
        right = bodies(count)
        return {
            "forgetful": right[:-1],
            "repeating": [*right[:-1], right[-2]],
            "swapping": [right[1], right[0], *right[2:]],
            "changing": [*right[:-1], right[-1].upper()],
        }.get(self.mode, right)

    def work(self, count: int) -> list[bytes]:
        return self.replay(count)

    def close(self) -> None:
        """Nothing is open."""


class ToyClient(AmpsClient):
    name = "amps-toy"

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def session(self, port: int, case: Case) -> Session:
        return ToySession(self.mode)


class AbsentClient(AmpsClient):
    name = "amps-absent"

    def absence(self) -> str:
        return "this version has no such thing"


@pytest.mark.parametrize(
    ("case", "peer"),
    [
        (Case.PUBLISH, AmpsFileClient()),
        (Case.LIVE, AmpsAsyncClient()),
        (Case.REPLAY, AmpsClient()),
        (Case.QUEUE, AmpsAsyncClient()),
    ],
)
def test_a_case_is_measured_and_checked(case: Case, peer: ClientPeer, tmp_path: Path) -> None:
    scenario = SCENARIOS[f"client-{case.value}"]
    said: list[str] = []
    settings = Settings(messages=COUNT, repetitions=1)
    result = run_scenario(scenario, [peer, AbsentClient()], settings, tmp_path, said.append)
    [measured] = [run for peer_result in result.peers for run in peer_result.runs]
    assert measured.messages == COUNT
    assert measured.values["messages_per_cpu_s"] > 0 < measured.values["messages_per_s"]
    assert "left out: amps-absent, because this version has no such thing" in said
    assert f"| {peer.title} | {peer.ways[case]} |" in report.markdown([result])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("case", "mode", "error"),
    [
        (Case.PUBLISH, "forgetful", "9 messages received instead of 10"),
        (Case.LIVE, "repeating", "message 9 is"),
        (Case.REPLAY, "swapping", "message 0 is"),
        (Case.QUEUE, "changing", "message 9 is"),
    ],
)
def test_wrong_messages_are_no_result(case: Case, mode: str, error: str) -> None:
    client = ClientProcess(Work(ToyClient(mode), case, 0, 10, None))
    try:
        with pytest.raises(PeerError, match=error):
            client.run(lambda: None, lambda: None)
    finally:
        client.end()


@pytest.mark.parametrize(("mode", "error"), [("failing", "no such luck"), ("dying", "ended with code 3")])
def test_a_client_that_fails_or_dies_is_no_result(mode: str, error: str) -> None:
    client = ClientProcess(Work(ToyClient(mode), Case.PUBLISH, 0, 10, None))
    try:
        with pytest.raises(PeerError, match=error):
            client.run(lambda: None, lambda: None)
    finally:
        client.end()
    assert not client.process.is_alive()


def test_all_bodies_differ_and_have_the_size() -> None:
    made = bodies(1000)
    assert len(set(made)) == 1000
    assert {len(body) for body in made} == {BODY_BYTES}
    check(made, made)


def test_the_name_client_chooses_all_of_its_scenarios_and_ours_only_the_own_peers() -> None:
    names = [scenario.name for scenario in chosen_scenarios("client")]
    assert {"client-publish", "client-live", "client-replay", "client-queue"} <= set(names)
    [peers] = chosen_peers([SCENARIOS["client-publish"]], wanted_peers(None, ours_only=True))
    assert [peer.name for peer in peers] == ["amps", "amps-memory", "amps-file", "amps-asyncio"]
    with pytest.raises(ValueError, match="exclude each other"):
        wanted_peers("redis", ours_only=True)


def test_a_profile_is_summed_up_by_function() -> None:
    text = summary("main (a.py:1);handle (b.py:7) 3\nmain (a.py:2);handle (b.py:9) 1\nmain (a.py:3) 4\n")
    own, inclusive = text.split("with the functions called")
    assert own.splitlines()[0] == "8 samples"
    assert own.split()[4:] == ["50.0%", "handle", "(b.py)", "50.0%", "main", "(a.py)"]
    assert inclusive.split() == ["100.0%", "main", "(a.py)", "50.0%", "handle", "(b.py)"]


def test_entries_of_both_protocols_of_redis_are_read() -> None:
    entries = [(b"1-0", {b"d": b"x"})]
    assert entries_of([[b"bench", entries]]) == entries_of({b"bench": [entries]}) == entries
    assert entries_of([]) == entries_of({}) == []
    with pytest.raises(PeerError, match="other"):
        entries_of([[b"other", entries]])
