"""The engine's connection: logon, heartbeats, damage and loss. The engine itself does no input or output."""

import ast
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amps.client.protocol.engine
from amps.client import AuthenticationException, Command, ConnectionState, DisconnectedException
from amps.client.errors import StreamException
from amps.client.protocol.engine_types import Close, Phase, Retry, Ticket, TicketDone, TicketFailed
from tests.support.server import package_path
from tests.unit.client.harness import Harness, delivered
from tests.unit.client.peer import encode


def test_client_1_logon_is_first_and_alone() -> None:
    """client.md §21 1: other commands wait until the logon is acknowledged"""
    h = Harness(version="1.2:python")
    h.connect()
    assert h.sent() == []
    ticket = h.engine.logon(h.now, None, None, "")
    h.engine.execute(Command("flush"), None, h.now)
    (logon,) = h.sent()
    assert logon.header == {
        "c": "logon", "cid": ticket.command_id, "client_name": "me", "a": "processed", "mt": "json",
        "version": "1.2:python",
    }  # fmt: skip
    h.receive(
        {"c": "ack", "cid": logon["cid"], "a": "processed", "status": "Success", "s": 0, "version": "5"}
    )
    assert [frame["c"] for frame in h.sent()] == ["flush"]
    assert h.engine.server_version == "5"
    assert [event.ticket for event in h.events(TicketDone)] == [ticket]


def test_client_4_challenges_are_answered_on_the_same_connection() -> None:
    """client.md §21 4: at most 32 rounds"""
    h = Harness()
    h.connect()
    ticket: Ticket | None = None
    for round_number in range(33):
        ticket = h.engine.logon(h.now, "u", f"p{round_number}", "", ticket)
        (logon,) = h.sent()
        assert logon["pw"] == f"p{round_number}"
        h.receive(
            {"c": "ack", "cid": logon["cid"], "a": "processed", "status": "retry", "user_id": "v", "pw": "c"}
        )
        events = h.events(Retry, TicketFailed)
        if round_number < 32:
            assert events == [Retry(ticket, "v", "c")]
    assert isinstance(events[0].error, AuthenticationException)
    assert not h.engine.logged_on


def test_a_refused_logon_leaves_the_connection_not_logged_on() -> None:
    h = Harness()
    h.connect()
    ticket = h.engine.logon(h.now, None, None, "")
    h.receive(
        {
            "c": "ack",
            "cid": ticket.command_id,
            "a": "processed",
            "status": "failure",
            "reason": "auth failure",
        }
    )
    (failed,) = h.events(TicketFailed)
    assert isinstance(failed.error, AuthenticationException)
    assert h.engine.phase is Phase.CONNECTED


def test_heartbeats_beat_each_interval_and_answer_the_server() -> None:
    """client.md §9.6: `start` in whole seconds, a beat in each interval and one for each heartbeat of the server"""
    h = Harness(heartbeat_s=1.5)
    h.logon()
    assert [frame.get("o") for frame in h.sent()] == [None, "start,2"]
    assert h.engine.deadline() == pytest.approx(101.5)
    h.engine.tick(101.4)
    assert h.sent() == []
    h.engine.tick(101.5)
    assert [frame["o"] for frame in h.sent()] == ["beat"]
    h.receive({"c": "heartbeat"})
    assert [frame["o"] for frame in h.sent()] == ["beat"]
    assert h.engine.deadline() == pytest.approx(103.0)


def test_silence_counts_only_while_reading() -> None:
    """client.md §21 33: silence during a slow handler does not count as a dead server"""
    h = Harness(heartbeat_s=1.0)
    h.ready()
    assert h.engine.silence_deadline() == pytest.approx(102.0)
    h.engine.tick(109.0)
    assert h.events(Close) == []
    h.engine.tick(109.0, reading=True)
    assert "9.0 s" in str(h.events(Close)[0].error)


def test_heartbeats_can_be_stopped() -> None:
    h = Harness(heartbeat_s=1.0).ready()
    h.engine.config = replace(h.engine.config, heartbeat_s=None)
    h.engine.start_heartbeat(h.now)
    assert [frame["o"] for frame in h.sent()] == ["stop"]
    assert h.engine.deadline() is None


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\x02{]", b"\xff\xff\xff\xff", b'\x00\x00\x00\x08{"c":"p"'])
def test_corrupt_data_closes_the_connection(damage: bytes) -> None:
    """client.md §19.10 rule 6"""
    h = Harness().ready()
    h.subscribe("A")
    h.engine.receive(encode({"c": "p", "t": "t", "sids": "A"}, b"good") + damage, h.now)
    deliver, close = h.events()
    assert deliver.messages[0].data == b"good"
    assert isinstance(close.error, StreamException)
    assert not h.engine.connected


def test_a_sow_record_longer_than_its_frame_is_corrupt() -> None:
    h = Harness().ready()
    h.receive({"c": "sow", "t": "t", "query_id": "9"}, body=b'{"k":"1","l":100}{}')
    assert isinstance(h.events()[-1], Close)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=30))
def test_frames_may_be_split_anywhere(cuts: list[int]) -> None:
    h = Harness().ready()
    h.subscribe("A")
    stream = b"".join(encode({"c": "p", "t": "t", "sids": "A"}, b"%d" % n) for n in range(12))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        h.engine.receive(stream[start:end], h.now)
    assert [data for _, data in delivered(h.events())] == [b"%d" % n for n in range(12)]


def test_a_lost_connection_fails_pending_commands_and_ends_every_route() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    ticket = h.engine.execute(Command("flush"), None, h.now)
    error = DisconnectedException("gone")
    h.engine.connection_lost(h.now, error)
    state, failed, end = h.events()
    assert state.state is ConnectionState.DISCONNECTED
    assert (failed.ticket, failed.error) == (ticket, error)
    assert (end.route, end.error) == (route, error)
    with pytest.raises(DisconnectedException):
        h.engine.execute(Command("flush"), None, h.now)


def test_client_70_the_engine_does_no_input_or_output() -> None:
    """client.md §21 70"""
    source = Path(amps.client.protocol.engine.__file__).parent
    for module in (
        "engine.py",
        "engine_state.py",
        "engine_types.py",
        "inbound.py",
        "outbound.py",
        "acknowledger.py",
    ):
        imported = set()
        for node in ast.walk(ast.parse((source / module).read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert not imported & {"socket", "ssl", "threading", "time", "asyncio", "logging", "select"}, module


def test_client_70_importing_the_client_brings_in_neither_asyncio_nor_the_server() -> None:
    """client.md §21 70"""
    program = (
        "import sys, amps.client;"
        " print([m for m in sys.modules if m == 'asyncio' or m.startswith('amps.server')])"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program],  # the package under test, not sources in the working directory
        env={**os.environ, "PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
