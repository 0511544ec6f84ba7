"""Processes with a bookmark store in a file that die at each step of its input and output, and at random.

The child tells through a pipe what it has done: `>` before a message is discarded, `<` after. The pipe outlives it.
"""

import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps.client import FileBookmarkStore, Message, RingBookmarkStore
from amps.client.stores import bookmark_log

Key = tuple[int, int]
STEPS = ("write", "rename", "fsync", "unlink")


def message(key: Key) -> Message:
    return Message.parsed(b"", {"bookmark": f"{key[0]}|{key[1]}|"}, 0, sub_id="S")


def server_log(seed: int, length: int) -> list[Key]:
    """The messages of two publishers, interleaved."""
    chosen = random.Random(seed)
    counts = {1: 0, 2: 0}
    log = []
    for _ in range(length):
        publisher = chosen.choice((1, 1, 2))
        counts[publisher] += 1
        log.append((publisher, counts[publisher]))
    return log


def resume_at(store: Any, log: list[Key]) -> int:
    recent = store.get_most_recent("S")
    if recent is None:
        return 0
    inclusive = recent.startswith("[")
    places = []
    for bookmark in recent.lstrip("[").partition(":")[0].split(","):
        publisher, number, _ = bookmark.split("|")
        places.append(log.index((int(publisher), int(number))))
    return min(places) + (not inclusive)


def work(store: Any, log: list[Key], chosen: random.Random, told: Callable[[str, Key], None], count: int) -> None:
    """Receive messages and discard most of them, in another order; prune sometimes."""
    held: list[tuple[Key, int]] = []
    for key in log[resume_at(store, log) :][:count]:
        arrived = message(key)
        if not store.is_discarded(arrived):
            held.append((key, store.log(arrived)))
        if chosen.random() < 0.1:
            store.persisted("S", f"{key[0]}|{key[1]}|")
        while held and chosen.random() < 0.6:
            done, number = held.pop(chosen.randrange(min(3, len(held))))
            told(">", done)
            store.discard("S", number)
            told("<", done)
        if chosen.random() < 0.05:
            store.prune()
    store.close()


class Child:
    """A forked process that works on a store, and dies."""

    def __init__(self, run: Callable[[Callable[[str, Key], None]], None]) -> None:
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                os.close(self.reader)
                raw_write = os.write
                run(lambda mark, key: raw_write(writer, f"{mark}{key[0]}|{key[1]}\n".encode()) and None)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)

    def end(self) -> tuple[int, set[Key], set[Key]]:
        """Wait; return the exit code, and the messages whose discard was begun, and was finished."""
        with os.fdopen(self.reader) as pipe:
            lines = pipe.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        begun, finished = (
            {(int(p), int(n)) for p, n in (line[1:].split("|") for line in lines if line[0] == mark)}
            for mark in "><"
        )
        return status, begun, finished


def check(opened: Callable[[], Any], log: list[Key], begun: set[Key], finished: set[Key], *, exact: bool) -> None:
    """Nothing undiscarded is lost; nothing that was discarded comes again, if the store is exact."""
    store = opened()
    start = resume_at(store, log)
    for at, key in enumerate(log):
        if key not in begun:
            assert at >= start, (key, store.get_most_recent("S"))
            assert not store.is_discarded(message(key)), key
        elif key in finished and exact:
            assert at < start or store.is_discarded(message(key)), key
    store.close()


def die_at(step: int, *, torn: bool) -> None:
    """Let this process end at its n-th step of input and output, in the middle of it or just before it."""
    left = step

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                if torn and name == "write":
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os._exit(77)
            left -= 1
            return original(*arguments)

        return call

    for name in STEPS:
        setattr(os, name, counted(name))


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_a_process_that_dies_at_any_step_loses_nothing(tmp_path: Path, kind: Any, torn: bool) -> None:
    """client.md §21 45, 49: death before, and in the middle of, every single write, rename and sync"""
    log = server_log(5, 40)
    for step in range(1000):
        path = tmp_path / str(step)

        def opened(path: Path = path) -> Any:
            return kind(path, sync="never")

        def run(told: Callable[[str, Key], None], opened: Callable[[], Any] = opened, step: int = step) -> None:
            die_at(step, torn=torn)
            work(opened(), log, random.Random(3), told, len(log))

        status, begun, finished = Child(run).end()
        assert status in (0, 77)
        check(opened, log, begun, finished, exact=kind is FileBookmarkStore)
        if status == 0:
            break
    assert 20 < step < 999


@pytest.mark.parametrize("sync", ["interval", "always"])
@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_processes_killed_at_random_lose_nothing(
    tmp_path: Path, kind: Any, sync: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """client.md §21 45: one file, used by one process after another, each killed by SIGKILL"""
    monkeypatch.setattr(bookmark_log, "_MIN_RECORDS", 50)  # the file is replaced often
    log = server_log(6, 20_000)
    chosen = random.Random(8)
    all_begun: set[Key] = set()
    all_finished: set[Key] = set()

    def opened() -> Any:
        return kind(tmp_path / "b", sync=sync)

    for round_number in range(12):

        def run(told: Callable[[str, Key], None], seed: int = round_number) -> None:
            work(opened(), log, random.Random(seed), told, len(log))

        child = Child(run)
        assert select.select([child.reader], [], [], 60)[0]
        time.sleep(chosen.uniform(0, 0.05))
        os.kill(child.pid, signal.SIGKILL)
        status, begun, finished = child.end()
        assert status in (-signal.SIGKILL, 0)
        if kind is FileBookmarkStore:
            assert not begun & all_finished
        all_begun |= begun
        all_finished |= finished
        check(opened, log, all_begun, all_finished, exact=kind is FileBookmarkStore)
    assert all_finished
