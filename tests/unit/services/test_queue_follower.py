"""Following the removals of one queue: each is published once, for any refusals and deaths of the process.

A small log stands for the core. It accepts publishes of a session whose numbers rise, drops duplicates, and refuses
when told to. Pending publishes of a refused session fail, as with the real core.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from amps._core.journal.reader import LogDamaged, LogMissing, LogRemoved, Record
from amps.config.queue_events import QueueEvent
from amps.server.services import queue_follower
from amps.server.services.publisher import PublishFailure, StorageUnavailable
from amps.server.services.queue_follower import Follower, Removals, first_number
from tests.support.queue_configurations import TOPICS, configuration, element, logged
from tests.support.services import Surroundings, action, do, echo, on, when

EVENT = QueueEvent(True, "json", "Q")
LETTER = do("publish-message", Topic="T_DEAD", MessageType="json", Data="{{AMPS_REASON}} {{AMPS_DATA}}")


class Log:
    """The core's side as a session sees it.

    `refuse(number)`: whether it refuses a publish; `full(number)`: whether the refusal is known at once.
    """

    def __init__(self) -> None:
        self.taken: dict[int, bytes] = {}
        self.dropped = 0
        self.refuse: Callable[[int], bool] = lambda number: False
        self.full: Callable[[int], bool] = lambda number: False
        self.logons = 0
        self.slow = False
        self._session: FakeSession | None = None

    def session(self, name: str) -> "FakeSession":
        self._session = FakeSession(name)
        return self._session

    async def log_on(self, session: "FakeSession") -> int:
        self.logons += 1
        session.logged_on = True
        await asyncio.sleep(0)
        return max(self.taken, default=0)

    async def push(
        self,
        session: "FakeSession",
        topic: str,
        message_type: str,
        data: bytes,
        sequence: int,
        delay_ms: int | None,
    ) -> "asyncio.Future[None]":
        assert delay_ms is None
        await asyncio.sleep(0)
        if topic == "bad":
            raise PublishFailure("the topic is refused")
        if not session.logged_on:
            raise StorageUnavailable("full")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.under_way.append(future)
        if self.full(sequence):
            session.logged_on = False
            for waiting in session.under_way:
                if not waiting.done():
                    waiting.set_exception(StorageUnavailable("full"))
            session.under_way.clear()
            raise StorageUnavailable("full")
        if self.refuse(sequence):
            # Earlier publishes are in the log, but their publisher gets no answer.
            session.logged_on = False
            for waiting in session.under_way:
                if not waiting.done():
                    waiting.set_exception(StorageUnavailable("full"))
            session.under_way.clear()
            return future
        if sequence <= max(self.taken, default=0):
            self.dropped += 1
        else:
            self.taken[sequence] = data
        if self.slow:
            asyncio.get_running_loop().call_later(0.001, done, future)
        else:
            done(future)
        return future


class FakeSession:
    def __init__(self, name: str) -> None:
        self.name = name
        self.logged_on = False
        self.under_way: list[asyncio.Future[None]] = []


def done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def message(position: int) -> Record:
    record = Record()
    record.payload, record.correlation_id = b"m%d" % position, b"c%d" % position
    return record


def body(position: int, reason: str = "time_limit") -> bytes:
    return b"%s m%d" % (reason.encode(), position)


def made(around: Surroundings, log: Log, read: Callable[[int], Record] = message, begin: int = 0) -> Follower:
    source = around.engine.sources[EVENT.kind, EVENT.which]
    return Follower(EVENT, source, around.engine, log, read, around.log, begin)  # type: ignore[arg-type]


def is_enough(follower: Follower, log: Log, count: int) -> bool:
    """True if the log has that many publishes, or no record is left."""
    return not follower.waiting or len(log.taken) >= count


async def until(condition: Callable[[], bool], *followers: Follower) -> None:
    """Let followers run until a condition holds, then cancel them."""
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
            for task in tasks:
                assert not task.done(), task.exception()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run(actions: str, test: Callable[[Surroundings], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a configuration of the queue Q and these actions."""

    async def body() -> None:
        around = Surroundings(
            text=configuration(
                element("Q", "<UnderlyingTopic>T</UnderlyingTopic>"),
                logged(*TOPICS) + f"<Actions>{actions}</Actions>",
            )
        )
        try:
            await test(around)
        finally:
            around.close()

    asyncio.run(body())


def expire(**more: str) -> str:
    return on("sow-expire-message", Topic="Q", MessageType="json", **more)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_follower, "RETRY_S", 0.002)


def test_numbers_rise_from_record_to_record() -> None:
    """This holds for any number of entries: a record has at least 80 + 32 bytes, and 32 for each entry."""
    for count in (1, 2, 4096):
        last = first_number(4096, count - 1) + 31
        assert last < first_number(4096 + 112 + 32 * count, 0)


def test_each_message_once_in_the_order_of_the_log() -> None:
    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log)
        follower.take(Removals(1000, [(8, 1), (16, 4), (0, 2), (24, 12)]))
        follower.take(Removals(2000, [(32, 2)]))
        await until(lambda: not follower.waiting, follower)
        assert list(log.taken.items()) == [
            (1001, body(8)),
            (1033, body(16, "max_cancels")),
            (1097, body(24, "max_cancels,max_deliveries")),
            (2001, body(32, "forced_expire")),
        ]
        assert follower.done_until(3000) == 3000

    run(action(expire(), LETTER), test)


def test_variables() -> None:
    """queues.md §15."""
    text = "{{AMPS_TOPIC}} {{AMPS_DATA}} {{AMPS_DATA_LENGTH}} {{AMPS_REASON}} {{AMPS_CORRELATION_ID}}"

    async def test(around: Surroundings) -> None:
        follower = made(around, Log())
        follower.take(Removals(1000, [(123, 9)]))
        await until(lambda: not follower.waiting, follower)
        assert around.echoed() == ["Q m123 4 time_limit,max_deliveries c123"]

    run(action(expire(), echo(text)), test)


def test_reasons_choose_actions_and_a_failed_step_ends_only_its_own() -> None:
    """Actions run in the order of the file; two `On` of one action run it once."""
    bad = do("publish-message", Topic="bad", MessageType="json", Data="x")

    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log)
        follower.take(Removals(1000, [(8, 1), (16, 2), (24, 6)]))
        await until(lambda: not follower.waiting, follower)
        assert around.echoed() == ["any m8", "any m16", "some m16", "any m24", "some m24"]
        assert list(log.taken.values()) == [body(16, "forced_expire"), body(24, "forced_expire,max_cancels")]
        assert len(around.log.texts("29-0002")) == 2

    run(
        action(expire(), echo("any {{AMPS_DATA}}"))
        + action(
            expire(Reason="forced_expire"), expire(Reason="max_cancels"), echo("some {{AMPS_DATA}}"), LETTER
        )
        + action(expire(Reason="forced_expire"), bad, echo("never")),
        test,
    )


def test_a_condition_that_does_not_hold() -> None:
    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log)
        follower.take(Removals(1000, [(8, 1), (16, 2)]))
        await until(lambda: not follower.waiting, follower)
        assert list(log.taken) == [1033]

    run(action(expire(), when("condition", Condition="'{{AMPS_REASON}}' = 'forced_expire'"), LETTER), test)


def test_nothing_runs_for_removals_done_before() -> None:
    """A start reads again from an earlier position; the log shows which publishes it has."""

    async def test(around: Surroundings) -> None:
        log = Log()
        log.taken = {1033: b"from before"}
        follower = made(around, log, begin=500)
        follower.take(Removals(400, [(4, 1)]))
        follower.take(Removals(1000, [(8, 1), (16, 1), (24, 1)]))
        await until(lambda: not follower.waiting, follower)
        # The second message may not be done: it runs again, and its publish is dropped.
        assert around.echoed() == ["m16", "m24"]
        assert list(log.taken.items()) == [(1033, b"from before"), (1065, body(24))]

    run(action(expire(), LETTER, echo("{{AMPS_DATA}}")), test)


def test_removals_before_its_beginning_are_ignored() -> None:
    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log, begin=500)
        follower.take(Removals(400, [(4, 1)]))
        assert follower.done_until(500) == 500
        follower.take(Removals(500, [(8, 1)]))
        await until(lambda: not follower.waiting, follower)
        assert list(log.taken) == [501]

    run(action(expire(), LETTER), test)


def test_an_unreadable_message_is_skipped_and_reported() -> None:
    def read(position: int) -> Record:
        if position == 8:
            raise LogRemoved("gone")
        if position == 16:
            raise LogDamaged("j", 16, "torn")
        return message(position)

    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log, read)
        follower.take(Removals(1000, [(8, 1), (16, 1), (24, 1)]))
        await until(lambda: not follower.waiting, follower)
        assert list(log.taken) == [1065]
        assert len(around.log.texts("29-0008")) == 2

    run(action(expire(), LETTER), test)


def test_a_missing_journal_is_waited_for() -> None:
    tries = itertools.count()

    def read(position: int) -> Record:
        if next(tries) < 5:
            raise LogMissing("j", 0, "the file is not there; put it back")
        return message(position)

    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log, read)
        follower.take(Removals(1000, [(8, 1)]))
        await until(lambda: not follower.waiting, follower)
        assert list(log.taken) == [1001]
        assert len(around.log.texts("29-0007")) == 1

    run(action(expire(), LETTER), test)


@pytest.mark.parametrize("seed", range(20))
def test_refusals_and_deaths_lose_and_double_nothing(seed: int) -> None:
    """Some publishes are refused. The process dies and begins again from any earlier position."""
    chance = random.Random(seed)
    position, records = 1000, []
    for _ in range(40):
        entries = [(chance.choice([0, 8, 16, 24]), 1) for _ in range(chance.randint(1, 6))]
        records.append(Removals(position, entries))
        position += 112 + 32 * len(entries)
    wanted = [
        (first_number(record.position, index) + step, text % at)
        for record in records
        for index, (at, _) in enumerate(record.entries)
        if at
        for step, text in enumerate((b"one m%d", b"two m%d"))
    ]

    async def test(around: Surroundings) -> None:
        log = Log()
        log.slow = chance.random() < 0.5
        begin = 0
        while True:
            log.refuse = lambda number: chance.random() < 0.05
            log.full = lambda number: chance.random() < 0.05
            follower = made(around, log, begin=begin)
            for record in records:
                follower.take(record)
            enough = len(log.taken) + chance.randint(1, 30)
            await until(partial(is_enough, follower, log, enough), follower)
            assert follower.done_until(position) <= position
            if not follower.waiting:
                break
            # The stored position is anywhere before the end of the work done.
            begin = chance.choice([begin, follower.done_until(position)])
        assert list(log.taken.items()) == wanted

    two = do("publish-message", Topic="T_DEAD", MessageType="json", Data="two {{AMPS_DATA}}")
    run(action(expire(), LETTER.replace("{{AMPS_REASON}}", "one")) + action(expire(), two), test)


def test_the_stored_position_covers_durable_publishes_only() -> None:
    """The stored position is before the first publish that is not done."""

    async def test(around: Surroundings) -> None:
        log = Log()
        follower = made(around, log)
        waiting: list[asyncio.Future[None]] = []
        push = log.push

        async def held(*given: Any) -> "asyncio.Future[None]":
            await push(*given)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(future)
            return future

        log.push = held  # type: ignore[method-assign]
        for position in (1000, 2000, 3000):
            follower.take(Removals(position, [(8, 1)]))

        def second_is_first() -> bool:
            if len(waiting) == 3 and not waiting[0].done():
                assert follower.done_until(4000) == 1000
                done(waiting[0])
            return follower.done_until(4000) == 2000

        await until(second_is_first, follower)

    run(action(expire(), LETTER), test)
