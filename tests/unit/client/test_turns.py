"""The turns of threads that cannot wait for ever, and what an interrupt leaves."""

import itertools
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from amps.client import Client, HAClient
from amps.client.blocking.states import StateQueue
from amps.client.blocking.turns import Turn
from amps.client.enums import ConnectionState
from tests.unit.client.peer import WAIT_S, Frame, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import log_on, wait_for


def release(turn: Turn) -> None:
    turn.holder = None
    turn.wake()


def test_one_claim_at_a_time_has_the_turn() -> None:
    turn, first, second = Turn(), object(), object()
    assert turn.take(first)
    assert not turn.take(second)
    assert not turn.take(second, time.monotonic() + 0.01)
    assert turn.holder is first
    release(turn)
    assert turn.take(second)


@pytest.mark.parametrize("limit_s", [None, 1000.0])
def test_a_thread_that_waits_gets_the_turn(limit_s: float | None) -> None:
    deadline = None if limit_s is None else time.monotonic() + limit_s
    turn, first, second = Turn(), object(), object()
    assert turn.take(first)
    waiting = Outcome(turn.take, (second, deadline), {})
    wait_for(lambda: turn._freed.waiting == 1)
    release(turn)
    assert waiting.result()
    assert turn.holder is second


def test_a_thread_that_nobody_wakes_looks_again() -> None:
    """An interrupt may come before `wake`."""
    turn = Turn()
    assert turn.take(object())
    waiting = Outcome(turn.take, (object(), None), {})
    wait_for(lambda: turn._freed.waiting == 1)
    turn.holder = None
    assert waiting.result()


def test_many_threads_take_turns() -> None:
    turn, inside, most = Turn(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            claim = object()
            assert turn.take(claim, None)
            inside += 1
            most = max(most, inside)
            inside -= 1
            release(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert most == 1


def test_states_are_told_after_an_interrupt() -> None:
    states, told = StateQueue(), []
    states.note(ConnectionState.CONNECTED)

    def interrupted(state: ConnectionState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        states.tell(interrupted)
    states.note(ConnectionState.LOGGED_ON)
    states.tell(told.append)
    assert told == [ConnectionState.LOGGED_ON]


@pytest.mark.parametrize("kind", [Client, HAClient])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("thread", ["amps-rx:me", "amps-tx:me"])
def test_a_connection_that_is_interrupted_when_it_is_made_is_none(
    peer: ScriptedPeer, monkeypatch: pytest.MonkeyPatch, thread: str, begun: bool, kind: type[Client]
) -> None:
    """Without a receive thread, calls would wait for answers that nobody reads"""
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        if self.name != thread:
            start(self)
            return
        if begun:
            start(self)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    client = kind("me", peer.uri)
    with pytest.raises(KeyboardInterrupt):
        client.open()
    wait_for(lambda: not client.connected)
    assert not getattr(client, "reconnecting", False)
    peer.accept().expect_close()
    connection = log_on(client, peer)
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")
    client.publish("t", b"x")
    assert connection.expect("publish").body == b"x"
    client.close()
    connection.expect_close()


# In a process of its own: a timer of the whole test process would be pytest's. The timer is set again for each
# interrupt, as Ctrl-C comes once. Interrupts come between any two instructions of `publish` and of what it calls.
INTERRUPTED = """
import itertools, random, signal, sys
from amps.client import {store}, HAClient
from amps.client import FixedDelayStrategy

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

def publish_until_interrupted():
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 3e-3))
    while True:
        client.publish("t", b"x" * 50)

random.seed(int(sys.argv[2]))
signal.signal(signal.SIGALRM, interrupt)
store = {store}({arguments})
client = HAClient("me", sys.argv[1], publish_store=store, timeout=20, delay_strategy=FixedDelayStrategy(0))
client.open()
for _ in range(60):
    try:
        publish_until_interrupted()
    except Interrupt:
        pass
client.publish_flush()
print(store.next_number - 1 if hasattr(store, "next_number") else store.frames.next_number - 1)
client.close()
store.close()
"""


class Persisting(ScriptedPeer):
    """Answers all clients, and notes the numbers of publishes for each connection."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[list[int]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Any) -> None:
        seen: list[int] = []
        self.numbers.append(seen)
        last = max((max(numbers) for numbers in self.numbers if numbers), default=0)
        while (frame := connection.frames.get()) is not None:
            try:
                last = self._take(connection, frame, seen, last)
            except OSError:
                return

    def _take(self, connection: Any, frame: Frame, seen: list[int], last: int) -> int:
        if frame["c"] == "logon":
            connection.ack(frame, client_name="me", s=last)
        elif frame["c"] == "publish":
            seen.append(frame["s"])
            return max(last, frame["s"])
        elif frame["c"] == "flush":
            connection.send({"c": "ack", "a": "persisted", "status": "success", "s": last})
            connection.ack(frame, "persisted")
        return last


@pytest.mark.parametrize("store", ["FilePublishStore", "MemoryPublishStore"])
def test_interrupts_at_any_time_lose_no_message_and_leave_the_client_usable(store: str, tmp_path: Any) -> None:
    """Each connection gets the numbers in order; one may come twice in a row. None is stored but never sent."""
    arguments = f"{str(tmp_path / 's')!r}, segment_bytes=2**20" if store == "FilePublishStore" else ""
    code = INTERRUPTED.format(store=store, arguments=arguments)
    peer = Persisting()
    try:
        command = [sys.executable, "-P", "-c", code, peer.uri, "7"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        count = int(done.stdout)
        assert count > 60
        assert {number for numbers in peer.numbers for number in numbers} == set(range(1, count + 1))
        for numbers in peer.numbers:
            assert all(0 <= after - before <= 1 for before, after in itertools.pairwise(numbers))
    finally:
        peer.close()
