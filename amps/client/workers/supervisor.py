"""Workers in child processes: starts them, replaces those that die, and lets all drain.

Each child has a pipe to its supervisor. It reports its counters there, and drains when the supervisor writes or dies.
Children are spawned, not forked: the supervisor may have threads, and no child keeps the pipe of another open.

A child that dies is replaced. One that cannot start, or finds that the worker cannot work at all, would only do so
again: it ends them all. A child that has started says so before anything else.
"""

import contextlib
import multiprocessing
import pickle
import signal
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess

from amps.client.errors import UsageException
from amps.client.workers.runner import END_S, TICK_S, Runner
from amps.client.workers.settings import Settings, WorkerStats

FIRST_RESTART_S = 0.5
LONGEST_RESTART_S = 30.0
STEADY_S = 60.0
"""A child that has lived so long is replaced as after a first death."""


class _Child:
    """One place for a child, and the child that is there."""

    def __init__(self, settings: Settings, number: int) -> None:
        name = settings.name and f"{settings.name}-{number}"
        self._settings = replace(settings, name=name)
        self._delay_s = FIRST_RESTART_S
        self._started = 0.0
        self.stats = WorkerStats()
        self.has_started = False
        self.failure: str | None = None
        """Why no child can work."""
        self.process: SpawnProcess | None = None
        self.pipe: Connection | None = None
        self.start_at = 0.0

    def start(self) -> None:
        self.has_started = False
        self.pipe, theirs = Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(self._settings, theirs), name="amps-worker"
        )
        self._started = time.monotonic()
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.close_pipe()
            raise UsageException(
                f"an argument of the worker cannot be sent to a child process ({error}): define the handler at the top "
                "level of a module, not as a lambda or inside a function"
            ) from error
        except BaseException:
            self.close_pipe()
            raise
        finally:
            theirs.close()
        self.process = process

    def read(self) -> None:
        """Read the reports that have arrived."""
        try:
            while self.pipe is not None and self.pipe.poll():
                received = self.pipe.recv()
                self.has_started = True
                if isinstance(received, WorkerStats):
                    self.stats = received
                else:
                    self.failure = received
        except (EOFError, OSError):
            self.close_pipe()

    def close_pipe(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None

    def ended(self) -> WorkerStats:
        """Forget the process, which has ended; return its last counters."""
        self.read()
        self.close_pipe()
        self.process = None
        now = time.monotonic()
        if now - self._started > STEADY_S:
            self._delay_s = FIRST_RESTART_S
        self.start_at = now + self._delay_s
        self._delay_s = min(LONGEST_RESTART_S, 2 * self._delay_s)
        last, self.stats = self.stats, WorkerStats()
        return replace(last, running=0, waiting=0, connected=0)


class Supervisor:
    """A worker in child processes."""

    def __init__(self, settings: Settings, processes: int) -> None:
        self._settings = settings
        self._children = [_Child(settings, number) for number in range(processes)]
        self._ended = WorkerStats()
        self._stops = 0
        self._woken, self._wake = Pipe(duplex=False)

    @property
    def stats(self) -> WorkerStats:
        """A snapshot of the counters, as the children have last reported them."""
        return sum((child.stats for child in self._children), self._ended)

    def stop(self) -> None:
        """Let the children drain; a second call kills them. For any thread, and for signal handlers."""
        self._stops += 1
        with contextlib.suppress(OSError):  # `run` has returned
            self._wake.send_bytes(b"\0")

    def run(self) -> None:
        """Work until `stop`. Raises UsageException if no child can work."""
        try:
            while not self._stops:
                for child in self._children:
                    if child.process is None and child.start_at <= time.monotonic():
                        child.start()
                self._wait(TICK_S)
            self._drain()
        finally:
            self._kill()
            self._wake.close()
            self._woken.close()

    def _wait(self, limit_s: float) -> None:
        """Wait for a report, the end of a child, or `stop`; replace no child."""
        sources: list[Connection | int] = [self._woken]
        for child in self._children:
            if child.process is not None:
                sources.append(child.process.sentinel)
            if child.pipe is not None:
                sources.append(child.pipe)
        if self._woken in wait(sources, limit_s):
            self._woken.recv_bytes()
        for child in self._children:
            process = child.process
            dead = process is not None and not process.is_alive()
            child.read()
            if child.failure is not None:
                raise UsageException(child.failure)
            if process is not None and dead:
                if not child.has_started and (process.exitcode or 0) > 0 and not self._stops:
                    raise UsageException(
                        f"a child process cannot start, it ended with {process.exitcode}: the program needs the guard "
                        "`if __name__ == \"__main__\":`, and the child must be able to import the handler"
                    )
                last = child.ended()
                self._ended += replace(last, restarts=0 if self._stops else 1)
                if not self._stops:
                    self._settings.logger.warning(
                        "worker: process %s ended with %s and is replaced", process.pid, process.exitcode
                    )

    def _drain(self) -> None:
        deadline = time.monotonic() + self._settings.drain_timeout + 2 * END_S
        for child in self._children:
            if child.pipe is not None:
                with contextlib.suppress(OSError):
                    child.pipe.send(None)
        while any(child.process for child in self._children):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._stops > 1:
                break
            self._wait(min(TICK_S, left_s))

    def _kill(self) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.kill()
                child.process.join()
                self._ended += child.ended()


def _work(settings: Settings, pipe: Connection) -> None:
    """Run a child. A key that interrupts a terminal's processes reaches the supervisor, too, which lets all drain."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def report(stats: WorkerStats) -> None:
        with contextlib.suppress(OSError):  # the supervisor is dead
            pipe.send(stats)

    report(WorkerStats())
    try:
        runner = Runner(settings, report)
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        _listen(runner, pipe)
        runner.run()
    except UsageException as error:
        with contextlib.suppress(OSError):
            pipe.send(str(error))
        raise SystemExit(1) from None


def _listen(runner: Runner, pipe: Connection) -> None:
    """Drain when the supervisor says so, or is dead."""

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        runner.stop()

    threading.Thread(target=listen, name="amps-worker-supervisor", daemon=True).start()
