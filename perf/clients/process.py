"""The process of a client under measurement, and the exchange with it.

The process connects and answers READY. When the other side says go, the clock runs until the case is finished. Live
messages are sent only when the process has answered STARTED, so that none arrives before the clock runs. In the end
the process checks everything that it received. A failure ends the process with its traceback as the answer.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perf.clients.base import WAIT_S, Case, ClientPeer, Session, bodies, check
from perf.clients.processors import confine_client
from perf.clients.profiling import profiled
from perf.pump import PeerError

READY = "ready"
STARTED = "started"
CHECKED = "checked"
ANSWER_S = 4 * WAIT_S
END_S = 20.0


@dataclass(frozen=True)
class Work:
    """One run of a client."""

    peer: ClientPeer
    case: Case
    port: int
    count: int
    profile: Path | None


@dataclass(frozen=True)
class Run:
    """The times of a run."""

    elapsed_s: float
    processor_s: float
    """Processor time of all threads of the client's process."""


@dataclass(frozen=True)
class Failure:
    """The traceback of a run that failed."""

    text: str


def client_main(pipe: "Connection[Any, Any]", work: Work) -> None:
    """The main function of the process."""
    try:
        confine_client()
        expected = bodies(work.count)
        session = work.peer.session(work.port, work.case)
        if work.case is Case.LIVE:
            session.listen(work.count)
        with profiled(work.profile):
            pipe.send(READY)
            pipe.recv()
            processor_s, started_s = time.process_time(), time.perf_counter()
            pipe.send(STARTED)
            received = timed(session, work.case, expected)
            run = Run(time.perf_counter() - started_s, time.process_time() - processor_s)
        pipe.send(run)
        check(session.replay(work.count) if work.case is Case.PUBLISH else received, expected)
        session.close()
        pipe.send(CHECKED)
    except Exception:
        pipe.send(Failure(traceback.format_exc()))


def timed(session: Session, case: Case, expected: list[bytes]) -> list[bytes]:
    """Do what the case asks for; return the bodies received."""
    match case:
        case Case.PUBLISH:
            session.publish(expected)
            return []
        case Case.LIVE:
            return session.heard()
        case Case.REPLAY:
            return session.replay(len(expected))
        case Case.QUEUE:
            return session.work(len(expected))


class ClientProcess:
    """A client in a process of its own, connected and ready."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=client_main, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.receive()
        except BaseException:
            self.end()
            raise

    def receive(self) -> Any:
        """The next answer. Raises PeerError if the client fails, dies, or does not answer."""
        try:
            if not self.pipe.poll(ANSWER_S):
                raise PeerError(f"the client has not answered in {ANSWER_S:g} s")
            answer = self.pipe.recv()
        except EOFError:
            self.process.join(END_S)
            raise PeerError(f"the client's process ended with code {self.process.exitcode}") from None
        if isinstance(answer, Failure):
            raise PeerError(f"the client failed:\n{answer.text}")
        return answer

    def run(self, meanwhile: Callable[[], object], after: Callable[[], object]) -> Run:
        """Start the clock, call `meanwhile`, wait for the end, call `after`, and let the client check its messages."""
        self.pipe.send("go")
        self.receive()
        meanwhile()
        run = self.receive()
        assert isinstance(run, Run)
        after()
        self.receive()
        return run

    def end(self) -> None:
        """End the process, at the latest after END_S."""
        self.pipe.close()
        self.process.join(END_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
