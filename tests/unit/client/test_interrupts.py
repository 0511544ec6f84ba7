"""Ctrl-C in calls of a client: nothing is sent twice, and no other thread of the client fails."""

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from amps.client import Client, DisconnectedException
from amps.client.blocking.changes import Changes, Signal
from tests.unit.client.interrupts import interrupted
from tests.unit.client.peer import WAIT_S, Connection, Frame, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import log_on, wait_for

PLACES = 400
PAUSE_S = 2e-4
BODIES: dict[str, Callable[[str], object]] = {"text": lambda text: text, "encoded": lambda text: {"n": text}}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("burst", [False, True])
def test_an_interrupted_publish_is_sent_at_most_once(
    peer: ScriptedPeer, make_client: Callable[..., Client], burst: bool, body: str
) -> None:
    """client.md §19.3: without a publish store, too. A connection gets what was published in its order."""
    client = make_client()
    log_on(client, peer)
    sent: list[str] = []

    def publish(name: str) -> None:
        sent.append(name)
        client.publish("t", BODIES[body](name))

    def burst_of(nth: int) -> None:
        for at in range(3 if burst else 1):
            publish(f"{nth}.{at}")

    most = 0
    for nth in range(1, PLACES):
        time.sleep(PAUSE_S)  # otherwise the last burst goes on
        try:
            if interrupted(lambda nth=nth: burst_of(nth), nth):
                most = nth
            elif nth > most + 20:
                break
            publish(f"{nth}.after")
        except DisconnectedException:  # an interrupted send ends the connection
            client.disconnect()
            log_on(client, peer)
            publish(f"{nth}.again")
    assert 30 < most < PLACES - 20
    with in_background(client.flush):
        wait_for(lambda: b'"c":"flush"' in peer.connections[-1].raw)
        frames = [list_of(connection) for connection in peer.connections]
        peer.connections[-1].ack(frames[-1][-1], "completed")
    places = {name: at for at, name in enumerate(sent)}
    received = [places[name_of(frame)] for each in frames for frame in each if frame["c"] == "publish"]
    assert len(received) > len(sent) / 2
    assert all(before < after for before, after in itertools.pairwise(received))


def answer_flushes(connection: Connection) -> None:
    while (frame := connection.frames.get()) is not None:
        if frame["c"] == "flush":
            connection.ack(frame, "completed")


def test_an_interrupted_wait_for_an_answer_hurts_no_other_thread(
    peer: ScriptedPeer, make_client: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    """The receive thread that notes the answer would fail, if the wait shared a lock with it."""
    client = make_client()
    most = 0
    for nth in range(1, PLACES):
        if not client.connected:
            client.disconnect()
            threading.Thread(target=answer_flushes, args=(log_on(client, peer),), daemon=True).start()
        try:
            if interrupted(client.flush, nth):
                most = nth
            elif nth > most + 5:
                break
            client.flush()
        except DisconnectedException:  # an interrupted send ends the connection
            wait_for(lambda: not client.connected)
    assert 30 < most < PLACES - 20
    assert "failed" not in caplog.text


def test_an_interrupted_wait_for_changes_is_over() -> None:
    """Later waits and changes are not affected."""
    for nth in range(1, 60):
        changes, state = Changes(), [0]
        more = interrupted(lambda: changes.wait_for(lambda: state[0], 0.001), nth)  # noqa: B023
        assert changes.waiting == 0
        later = Outcome(changes.wait_for, (lambda: state[0], WAIT_S), {})  # noqa: B023
        wait_for(lambda: changes.waiting == 1)  # noqa: B023
        state[0] = 1
        changes.notify()
        assert later.result() is True
        if not more:
            break
    assert 5 < nth < 59


def test_an_interrupted_change_is_seen_by_itself() -> None:
    changes, state = Changes(), [0]
    later = Outcome(changes.wait_for, (lambda: state[0], WAIT_S), {})
    wait_for(lambda: changes.waiting == 1)
    state[0] = 1  # and no notification
    assert later.result() is True


def test_a_signal_is_waited_for() -> None:
    signal = Signal()
    assert not signal.wait(0.01)
    later = Outcome(signal.wait, (None,), {})
    signal.set()
    signal.set()
    assert later.result() is True
    assert signal.wait(0)


def list_of(connection: Connection) -> list[Frame]:
    """The frames that have arrived, once the last one has."""
    frames: list[Frame] = []
    while frame := connection.frames.get(timeout=WAIT_S):
        frames.append(frame)
        if frame["c"] == "flush":
            break
    return frames


def name_of(frame: Frame) -> str:
    return frame.body.decode().removeprefix('{"n":"').removesuffix('"}')
