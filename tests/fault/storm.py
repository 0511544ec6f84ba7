"""Random deaths of a running server, from one seed.

After every death the test does what an operator or the supervisor would do, until the instance serves again. The
supervisor gives up on a process that dies five times within a minute. A storm therefore kills each kind at most three
times before it restarts the whole instance.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence

import psutil

from tests.fault.load import Publisher, Subscriber, check_everything, replay, running, wait_for_all
from tests.support.server import ServerProcess, wait_until

DEATHS_PER_KIND = 3
EVERYBODY_GONE_S = 30.0
LOGGED = "^load/"
KINDS = (
    "tree",
    "core",
    "transport",
    "log",
    "supervisor",
    "frozen core",
    "frozen transport",
    "core twice",
    "restart",
)


class Storm:
    """The deaths of one seed."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.history: list[str] = []
        self._server = server
        self._chance = random.Random(seed)
        self._deaths: Counter[str] = Counter()

    def strike(
        self, publishers: list[Publisher], subscribers: list[Subscriber], kind: str | None = None
    ) -> None:
        """Wait a moment, kill or freeze a process, and wait until all participants work again."""
        time.sleep(self._chance.random() * 0.5)
        kind = kind or self._chance.choice(KINDS)
        self.history.append(kind)
        if kind in ("tree", "supervisor", "restart") or self._too_often(kind):
            self._end_instance(kind)
            self._deaths.clear()
            self._server.start()
        else:
            self._kill_one(kind)
        wait_for_all(publishers, subscribers)

    def _too_often(self, kind: str) -> bool:
        title = kind.split()[0]
        self._deaths[title] += 2 if kind == "core twice" else 1
        return self._deaths[title] > DEATHS_PER_KIND

    def _end_instance(self, kind: str) -> None:
        if kind == "restart":
            self._server.stop()
        elif kind == "supervisor":
            kill_supervisor(self._server)
        else:
            self._server.kill_all()

    def _kill_one(self, kind: str) -> None:
        server = self._server
        if kind == "core":
            server.kill_core()
        elif kind == "core twice":
            first = server.core_pid()
            server.kill_core()
            # The second kill comes while the core recovers, or shortly after.
            wait_until(lambda: server.pids("amps: core") not in ([], [first]), 20, "no new core")
            time.sleep(self._chance.random() * 0.05)
            server.kill_core()
        elif kind == "transport":
            server.kill_transport(self._chance.randrange(len(server.transport_pids())))
        elif kind == "log":
            server.kill_process(only(server.pids("amps: log")))
        elif kind == "frozen core":
            self._freeze(server.core_pid())
        else:
            self._freeze(self._chance.choice(server.transport_pids()))

    def _freeze(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.random() * 1.5)
        os.kill(pid, signal.SIGCONT)


def kill_supervisor(server: ServerProcess) -> None:
    """SIGKILL the supervisor alone: the other processes must notice, drain and end by themselves."""
    assert server.process is not None
    children = [psutil.Process(pid) for pid in server.pids()]
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(10)
    _, alive = psutil.wait_procs(children, timeout=EVERYBODY_GONE_S)
    assert not alive, f"still there {EVERYBODY_GONE_S} s after the supervisor's death: {alive}"
    server.kill_all()


def only(pids: list[int]) -> int:
    """Return the only element; fail if there is not exactly one."""
    assert len(pids) == 1, pids
    return pids[0]


def crowd(server: ServerProcess, seed: int, publishers: int = 3) -> tuple[list[Publisher], list[Subscriber]]:
    """Publishers on topics of their own, and subscribers to all or some of these topics."""
    made = [Publisher(server, f"publisher-{n}", f"load/{n % 2}", seed + n) for n in range(publishers)]
    return made, [Subscriber(server, f"subscriber-{n}", "^load/") for n in range(2)]


def storm(server: ServerProcess, seed: int, kinds: Sequence[str | None]) -> None:
    """Run load, one death of each of `kinds` (None: any), and the audit afterwards."""
    publishers, subscribers = crowd(server, seed)
    weather = Storm(server, seed)
    try:
        with running([*publishers, *subscribers]):
            wait_for_all(publishers, subscribers)
            for kind in kinds:
                weather.strike(publishers, subscribers, kind)
        check_everything(replay(server, LOGGED), publishers, subscribers)
        # The contents of the log are also on the disk.
        server.kill_all()
        server.start()
        check_everything(replay(server, LOGGED), publishers, subscribers)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, deaths so far: {weather.history}")
        raise
