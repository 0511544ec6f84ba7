"""`Worker` against servers: attempts, dead letters, draining, deaths of servers and child processes (client.md §6)."""

import asyncio
import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from amps.client import AMPSException, Client, Failure, HAClient, Message, Rejected, UsageException, Worker
from tests.support.peers import Peers
from tests.support.queues import Queueing, bodies, options, queue_xml
from tests.support.server import (
    ServerProcess,
    StartServer,
    loaded_module_xml,
    module_xml,
    package_path,
    wait_until,
)

TIMEOUT_S = 30.0


EXPIRED_XML = """<Actions><Action>
  <On><Module>amps-action-on-sow-expire-message</Module>
    <Options><Topic>%s</Topic><MessageType>json</MessageType></Options></On>
  <Do><Module>amps-action-do-publish-message</Module>
    <Options><Topic>T-expired</Topic><MessageType>json</MessageType>
      <Data>{"why":"{{AMPS_REASON}}","message":{{AMPS_DATA}}}</Data></Options></Do>
</Action></Actions>"""


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T; QC, which limits cancels, over TC; QL with short leases over TL. Topics that begin with `deny` are
    forbidden.
    """
    settings = options(
        queue_xml("Q", "T", MaxPerSubscriptionBacklog=50, LeasePeriod="60s"),
        queue_xml("QC", "TC", MaxPerSubscriptionBacklog=50, MaxCancels=3),
        queue_xml("QL", "TL", MaxPerSubscriptionBacklog=50, LeasePeriod="500ms"),
        modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
        entitlement_xml=module_xml("Entitlement", "simple", DeniedTopics="^deny"),
    )
    settings["instance_xml"] += EXPIRED_XML % "Q" + EXPIRED_XML.replace("T-expired", "TC-expired") % "QC"
    settings["instance_xml"] = settings["instance_xml"].replace("</Actions><Actions>", "")
    return Queueing(start_server(**settings), peers)


def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


class Seen:
    """Counts the calls of a handler."""

    def __init__(self) -> None:
        self.calls: collections.Counter[bytes] = collections.Counter()
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.calls[message.data] += 1


@contextlib.contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    """Run a worker in a thread; stop it at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert errors == []


def test_client_worker_handles_each_message_once(queueing: Queueing) -> None:
    """Threads share the messages; all are acknowledged when `run` returns."""
    seen = Seen()
    threads: set[int] = set()
    meet = threading.Barrier(4)

    def handle(message: Message) -> None:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            meet.wait(TIMEOUT_S)  # four handlers run at the same time
        seen(message)

    queueing.publish(*range(500))
    with running(Worker(uri(queueing.server), "Q", handle, concurrency=4, ack_timeout=0)) as worker:
        wait_until(lambda: len(seen.calls) == 500, TIMEOUT_S, lambda: repr(worker))
    assert seen.calls == dict.fromkeys(bodies(*range(500)), 1)
    assert (worker.stats.handled, worker.stats.running, worker.stats.waiting) == (500, 0, 0)
    assert queueing.waiting("Q", 0) == []


def test_client_worker_runs_coroutines(queueing: Queueing) -> None:
    """A coroutine function runs as tasks, at most `concurrency` at a time."""
    seen = Seen()
    now = most = 0

    async def handle(message: Message) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        seen(message)
        if message.data == bodies(7)[0] and seen.calls[message.data] == 1:
            raise ValueError("not yet")

    queueing.publish(*range(100))
    with running(Worker(uri(queueing.server), "Q", handle, concurrency=8, retry_delay=0)) as worker:
        wait_until(lambda: sum(seen.calls.values()) == 101, TIMEOUT_S, lambda: repr(worker))
    assert most == 8
    assert seen.calls.pop(bodies(7)[0]) == 2
    assert set(seen.calls.values()) == {1}
    assert (worker.stats.handled, worker.stats.failed, worker.stats.retried) == (100, 1, 1)
    assert queueing.waiting("Q", 0) == []


def test_client_worker_holds_no_more_than_its_backlog(queueing: Queueing) -> None:
    """Messages beyond `max_backlog` stay in the queue, for other consumers."""
    go_on = threading.Event()
    worker = Worker(
        uri(queueing.server), "Q", lambda _message: go_on.wait(TIMEOUT_S), concurrency=2, max_backlog=7
    )
    queueing.publish(*range(15))
    with running(worker):
        wait_until(lambda: (worker.stats.running, worker.stats.waiting) == (2, 5), TIMEOUT_S, lambda: repr(worker))
        assert queueing.waiting("Q", 8) == bodies(*range(7, 15))
        go_on.set()
        wait_until(lambda: worker.stats.handled == 15, TIMEOUT_S, lambda: repr(worker))


def letters(queueing: Queueing, topic: str, count: int) -> list[Message]:
    """The messages of a recorded topic, which must be so many."""
    with Client(uri=uri(queueing.server)) as client:
        stream = client.bookmark_subscribe(topic, "epoch")
        found = [stream.get(TIMEOUT_S) for _ in range(count)]
        assert stream.get(0.2) is None
    return [message for message in found if message is not None]


@pytest.mark.parametrize("topic", ["Q", "QC"])
def test_client_worker_gives_up_after_the_last_attempt(queueing: Queueing, topic: str) -> None:
    """The limit is `max_attempts`, with the `expire` option, or the queue's MaxCancels; queues.md §11, §15."""
    seen = Seen()
    limit, reason = (2, "forced_expire") if topic == "Q" else (None, "max_cancels")

    def handle(message: Message) -> None:
        seen(message)
        if message.json()["id"] == 2:
            raise ValueError("never")

    underlying = topic.replace("Q", "T")
    queueing.publish(1, 2, 3, topic=underlying)
    with running(Worker(uri(queueing.server), topic, handle, max_attempts=limit, retry_delay=0.01)) as worker:
        (letter,) = letters(queueing, f"{underlying}-expired", 1)
        assert letter.json() == {"why": reason, "message": {"id": 2}}
        wait_until(lambda: worker.stats.handled == 2, TIMEOUT_S, lambda: repr(worker))
    calls = limit or 3
    assert seen.calls == dict(zip(bodies(1, 2, 3), (1, calls, 1), strict=True))
    assert (worker.stats.failed, worker.stats.retried) == (calls, calls - (1 if limit else 0))
    assert worker.stats.dead == (1 if limit else 0)
    assert queueing.waiting(topic, 0) == []


def test_client_worker_publishes_dead_letters(queueing: Queueing) -> None:
    """The body is unchanged; the reason and the former correlation id are in the correlation id."""
    seen = Seen()

    def handle(message: Message) -> None:
        seen(message)
        raise (Rejected if message.json()["id"] == 1 else KeyError)("side")

    queueing.publish(1, 2, x="b2xk")
    worker = Worker(
        uri(queueing.server), "Q", handle, dead_letter_topic="T-dead", max_attempts=3, retry_delay=0.01
    )
    with running(worker):
        found = {letter.data: Failure.of(letter) for letter in letters(queueing, "T-dead", 2)}
        wait_until(lambda: worker.stats.dead == 2, TIMEOUT_S, lambda: repr(worker))
    assert seen.calls == dict(zip(bodies(1, 2), (1, 3), strict=True))
    first, second = (found[body] for body in bodies(1, 2))
    assert (first.topic, first.attempts, first.error, first.correlation_id) == ("Q", 1, "Rejected: side", "b2xk")
    assert (second.attempts, second.error) == (3, "KeyError: 'side'")
    assert queueing.waiting("Q", 0) == []
    assert queueing.waiting("QC", 0) == []


def test_client_worker_keeps_a_message_whose_dead_letter_is_refused(queueing: Queueing) -> None:
    """Nothing is lost if the dead letter cannot be published: the message stays in the queue."""
    seen = Seen()

    def handle(message: Message) -> None:
        seen(message)
        raise Rejected("no")

    queueing.publish(1)
    with running(
        Worker(uri(queueing.server), "Q", handle, dead_letter_topic="deny", retry_delay=0.01)
    ) as worker:
        wait_until(lambda: worker.stats.retried >= 2, TIMEOUT_S, lambda: repr(worker))
    assert worker.stats.dead == 0
    assert queueing.waiting("Q", 1) == bodies(1)


def test_client_worker_does_not_handle_a_message_twice_at_a_time(queueing: Queueing) -> None:
    """A message whose lease ends while its handler runs is delivered again, but not handled again."""
    seen = Seen()
    go_on = threading.Event()

    def handle(message: Message) -> None:
        seen(message)
        go_on.wait(TIMEOUT_S)

    queueing.publish(1, topic="TL")
    with running(Worker(uri(queueing.server), "QL", handle, concurrency=2)) as worker, Client(
        uri=uri(queueing.server)
    ) as client:
        wait_until(lambda: worker.stats.running == 1, TIMEOUT_S, lambda: repr(worker))
        delivered = client.sow_count("QL")  # 0 while it is leased
        threading.Event().wait(2.0)
        assert (seen.calls, worker.stats.running, delivered) == ({bodies(1)[0]: 1}, 1, 0)
        go_on.set()
        wait_until(lambda: worker.stats.handled == 1, TIMEOUT_S, lambda: repr(worker))
    assert queueing.waiting("QL", 0) == []


def test_client_worker_acknowledges_a_settled_message_again(queueing: Queueing) -> None:
    """A message whose lease ends before its acknowledgement is sent is delivered again, but not handled again."""
    seen = Seen()
    with running(Worker(uri(queueing.server), "QL", seen, ack_batch_size=3, ack_timeout=1000)) as worker:
        queueing.publish(1, topic="TL")
        wait_until(lambda: seen.calls.total() == 1, TIMEOUT_S, lambda: repr(worker))
        threading.Event().wait(1.5)
        assert seen.calls == {bodies(1)[0]: 1}
    assert queueing.waiting("QL", 0) == []


def test_client_worker_drains(queueing: Queueing) -> None:
    """Handlers that run may end, and no other consumer gets their messages; all others go back to the queue."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def handle(message: Message) -> None:
        begun.release()
        go_on.wait(TIMEOUT_S)

    queueing.publish(*range(10))
    worker = Worker(uri(queueing.server), "Q", handle, concurrency=2, max_backlog=5)
    with running(worker):
        for _ in range(2):
            assert begun.acquire(timeout=TIMEOUT_S)
        wait_until(lambda: worker.stats.waiting == 3, TIMEOUT_S, lambda: repr(worker))
        worker.stop()
        # The other half of the queue is all that another consumer can have while the handlers run.
        assert queueing.waiting("Q", 5) == bodies(*range(5, 10))
        go_on.set()
    assert worker.stats.handled == 2
    assert queueing.waiting("Q", 8) == bodies(*range(2, 10))


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_client_worker_leaves_handlers_that_do_not_end(queueing: Queueing, kind: str) -> None:
    """After `drain_timeout` their messages are in the queue again."""
    never, begun = threading.Event(), threading.Event()
    cancelled: list[BaseException] = []

    def handle(message: Message) -> None:
        begun.set()
        never.wait(TIMEOUT_S)

    async def handle_in_a_task(message: Message) -> None:
        begun.set()
        try:
            await asyncio.sleep(TIMEOUT_S)
        except asyncio.CancelledError as error:
            cancelled.append(error)
            raise

    queueing.publish(1, 2)
    handler = handle if kind == "threads" else handle_in_a_task
    worker = Worker(uri(queueing.server), "Q", handler, drain_timeout=0.1)
    with running(worker):
        assert begun.wait(TIMEOUT_S)
    assert len(cancelled) == (kind == "tasks")
    assert queueing.waiting("Q", 2) == bodies(1, 2)
    never.set()
    assert (worker.stats.handled, worker.stats.failed) == (0, 0) or kind == "threads"


def test_client_worker_gives_a_failed_message_back_when_it_drains(queueing: Queueing) -> None:
    """A message that waits for its next attempt does not delay the end."""

    def handle(message: Message) -> None:
        raise ValueError("not yet")

    queueing.publish(1)
    worker = Worker(uri(queueing.server), "Q", handle, retry_delay=1000, max_retry_delay=1000)
    with running(worker):
        wait_until(lambda: worker.stats.failed == 1, TIMEOUT_S, lambda: repr(worker))
    assert worker.stats.retried == 1
    assert queueing.waiting("Q", 1) == bodies(1)


def test_client_worker_survives_the_servers_death(queueing: Queueing) -> None:
    """Each message is handled, although the server dies between; those not begun then are not handled twice."""
    server = queueing.server
    seen = Seen()
    go_on, begun = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        seen(message)
        begun.set()
        go_on.wait(TIMEOUT_S)

    queueing.publish(*range(30))
    worker = Worker(uri(server), "Q", handle, max_backlog=20)
    with running(worker):
        assert begun.wait(TIMEOUT_S)
        wait_until(lambda: worker.stats.waiting == 19, TIMEOUT_S, lambda: repr(worker))
        server.kill_all()
        wait_until(lambda: worker.stats.waiting == 0, TIMEOUT_S, lambda: repr(worker))
        server.start()
        wait_until(lambda: worker.stats.waiting == 19, TIMEOUT_S, lambda: repr(worker))
        go_on.set()
        wait_until(lambda: len(seen.calls) == 30, TIMEOUT_S, lambda: repr(worker))
    assert seen.calls == dict.fromkeys(bodies(*range(30)), 1)
    assert Queueing(server, queueing.peers).waiting("Q", 0) == []


def test_client_worker_ends_with_an_error_if_its_client_does(queueing: Queueing) -> None:
    """`run` raises if the client is lost for good, or the subscription refused; it may not run again."""
    server = queueing.server
    lost = Worker(lambda: Client(uri=uri(server)), "Q", Seen())
    errors: list[BaseException] = []

    def run() -> None:
        try:
            lost.run()
        except AMPSException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    queueing.publish(1)
    wait_until(lambda: lost.stats.handled == 1, TIMEOUT_S, lambda: repr(lost))
    with pytest.raises(AMPSException):
        Worker(uri(server), "Q", Seen(), filter="/id <").run()
    server.restart()
    thread.join(TIMEOUT_S)
    assert len(errors) == 1
    with pytest.raises(UsageException):
        lost.run()


async def do_nothing(message: Message) -> None:
    """A handler."""


@pytest.mark.parametrize("handler", [Seen(), do_nothing], ids=["threads", "tasks"])
def test_client_worker_stops_while_it_cannot_connect(handler: Callable[[Message], object]) -> None:
    """`stop` ends the attempts to reach a server, and takes effect before `run`, too."""
    nowhere = Worker("tcp://127.0.0.1:1/amps/json", "Q", handler)
    with running(nowhere):
        pass
    early = Worker("tcp://127.0.0.1:1/amps/json", "Q", handler)
    early.stop()
    early.run()


def test_client_worker_refuses_dead_letters_of_a_publish_store() -> None:
    """A publish store would hide that the server refused a dead letter, and the message would be lost."""
    worker = Worker(
        lambda: HAClient.memory_backed("w", "tcp://127.0.0.1:1/amps/json"), "Q", Seen(), dead_letter_topic="T-dead"
    )
    with pytest.raises(UsageException, match="publish store"):
        worker.run()


PROGRAM = """
import os, signal, sys, time
from amps.client import Worker


def handle(message):
    with open(sys.argv[2], "ab", buffering=0) as file:  # one write per line: lines of several processes do not mix
        file.write(b"%d %d\\n" % (os.getpid(), message.json()["id"]))
    time.sleep(0.002)


if __name__ == "__main__":
    mine = lambda *_: None
    signal.signal(signal.SIGTERM, mine)
    worker = Worker(sys.argv[1], "Q", handle, concurrency=2, processes=int(sys.argv[3]), name="w")
    worker.run()
    assert signal.getsignal(signal.SIGTERM) is mine
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    stats = worker.stats
    print(stats.handled, stats.restarts, stats.running)
"""


class Program:
    """A worker as a program; each call of its handler is a line in a file."""

    def __init__(self, server: ServerProcess, directory: Path, processes: int) -> None:
        script = directory / "program.py"
        script.write_text(PROGRAM)
        self._lines = directory / "handled"
        self._lines.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script), uri(server), str(self._lines), str(processes)],
            env={"PYTHONPATH": package_path()},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def calls(self) -> list[tuple[int, int]]:
        """The process, and the number of the message, of each call."""
        lines = self._lines.read_text().splitlines()
        return [(int(pid), int(number)) for pid, number in (line.split() for line in lines)]

    def wait(self, signal_number: int | None = None) -> list[int]:
        """Send a signal; return the counters that the program prints at its end."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        said, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0
        return [int(word) for word in said.split()]


@pytest.fixture
def start_program(queueing: Queueing, tmp_path: Path) -> Iterator[Callable[[int], Program]]:
    """Starts programs that are killed with the test."""
    started: list[Program] = []

    def start(processes: int) -> Program:
        started.append(Program(queueing.server, tmp_path, processes))
        return started[-1]

    yield start
    for program in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait(TIMEOUT_S)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_client_worker_drains_at_a_signal(
    queueing: Queueing, start_program: Callable[[int], Program], processes: int, number: int
) -> None:
    """A signal amid the load: each message was handled once or is in the queue; the former signal handlers are back."""
    queueing.publish(*range(3000))
    program = start_program(processes)
    wait_until(lambda: len({pid for pid, _ in program.calls()}) == (processes or 1), TIMEOUT_S, "no process")
    wait_until(lambda: len(program.calls()) > 50, TIMEOUT_S, "no messages")
    handled, restarts, running_now = program.wait(number)
    numbers = [number for _, number in program.calls()]
    assert handled == len(numbers) == len(set(numbers)) < 3000
    assert (restarts, running_now) == (0, 0)
    with Client(uri=uri(queueing.server)) as client:
        left = {row.json()["id"] for row in client.sow("Q")}
    assert left == set(range(3000)) - set(numbers)


def test_client_worker_replaces_a_killed_process(
    queueing: Queueing, start_program: Callable[[int], Program]
) -> None:
    """kill -9 of a child amid the load: each message is handled, and another process takes its place."""
    queueing.publish(*range(1000))
    program = start_program(2)
    wait_until(lambda: len({pid for pid, _ in program.calls()}) == 2, TIMEOUT_S, "no two processes")
    victim = program.calls()[-1][0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: {number for _, number in program.calls()} == set(range(1000)), TIMEOUT_S, "lost messages")
    published = 1000

    def replaced() -> bool:
        nonlocal published
        queueing.publish(*range(published, published + 10))
        published += 10
        return len({pid for pid, _ in program.calls()}) == 3

    wait_until(replaced, TIMEOUT_S, "not replaced")
    everything = set(range(published))
    wait_until(lambda: {number for _, number in program.calls()} == everything, TIMEOUT_S, "lost messages")
    assert program.wait(signal.SIGTERM)[1] == 1
    twice = collections.Counter(number for _, number in program.calls())
    assert set(twice.values()) <= {1, 2}
    assert queueing.waiting("Q", 0) == []


def test_client_worker_processes_end_with_their_supervisor(
    queueing: Queueing, start_program: Callable[[int], Program]
) -> None:
    """kill -9 of the supervisor: its children drain and end."""
    queueing.publish(*range(5))
    program = start_program(1)
    wait_until(lambda: len(program.calls()) == 5, TIMEOUT_S, "no messages")
    child = psutil.Process(program.calls()[0][0])
    program.process.kill()
    child.wait(TIMEOUT_S)
    assert queueing.waiting("Q", 0) == []
