"""The internal publisher, without a core: messages refused at once, and reports of its own failures."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from amps.server.runtime import Runtime
from amps.server.services.publisher import Publisher, PublishFailure, Session, StorageUnavailable
from tests.support.services import RecordingLog, loaded


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(tmp_path))
    made = Runtime(1, services=True)
    yield made
    for wake_up in (made.core_wake_up, *made.transport_wake_ups):
        os.close(wake_up.fd)
    made.directory.remove()


def make(runtime: Runtime, failures: list[str]) -> Publisher:
    return Publisher(loaded(log=True).config, runtime, RecordingLog(), failures.append)  # type: ignore[arg-type]


def logged_on(session: Session) -> None:
    """Set the session's state as if the core had answered."""
    session.logon = asyncio.get_running_loop().create_future()
    session.logon.set_result((0, 0))


@pytest.mark.parametrize(
    ("topic", "message_type", "reason"),
    [
        ("", "json", "there is no topic"),
        ("a\udcff", "json", "no valid text"),
        ("a", "gif", "no message type 'gif'"),
        ("/AMPS/x", "json", "refused: invalid topic"),
    ],
)
def test_messages_that_cannot_be_published(
    runtime: Runtime, topic: str, message_type: str, reason: str
) -> None:
    async def body() -> None:
        publisher = make(runtime, [])
        publisher.begin(asyncio.get_running_loop())
        logged_on(publisher._own)
        with pytest.raises(PublishFailure, match=reason):
            await publisher.publish(topic, message_type, b"{}")

    asyncio.run(body())


def test_a_failure_of_its_own_is_reported(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an action would wait for ever, and so would every later action of its event."""

    def failing() -> None:
        raise RuntimeError("a fault")

    async def body() -> list[str]:
        failures: list[str] = []
        publisher = make(runtime, failures)
        publisher.begin(asyncio.get_running_loop())
        monkeypatch.setattr(publisher._core, "push_waiting", failing)
        task = asyncio.create_task(publisher.publish("a", "json", b"{}"))
        while not failures:
            await asyncio.sleep(0.001)
        task.cancel()
        return failures

    assert "RuntimeError: a fault" in asyncio.run(body())[0]


# --- numbered publishes, refused by the core --------------------------------------------------------------


def with_session(runtime: Runtime, test: Callable[[Publisher, Session], Coroutine[None, None, None]]) -> None:
    """Run a test with a session that has logged on, without a core. `answering` supplies the core's answers."""

    async def body() -> None:
        publisher = make(runtime, [])
        publisher.begin(asyncio.get_running_loop())
        session = publisher.session("test")
        logged_on(session)
        await test(publisher, session)

    asyncio.run(body())


def answering(publisher: Publisher, answers: Callable[[], list[tuple[object, ...]]]) -> None:
    """Supply answers of the core, and let the publisher read them."""
    publisher._core.answers = answers  # type: ignore[method-assign, assignment]
    publisher._work()


def test_pending_publishes_fail_when_the_core_refuses(runtime: Runtime) -> None:
    """No further publish is accepted before the session has logged on again."""

    async def test(publisher: Publisher, session: Session) -> None:
        futures = [await publisher.push(session, "a", "json", b"{}", number) for number in (5, 6)]
        other = publisher.session("other")
        logged_on(other)
        kept = await publisher.push(other, "a", "json", b"{}", 5)
        answering(publisher, lambda: [("refused", session.slot, session.serial)])
        for future in futures:
            assert isinstance(future.exception(), StorageUnavailable)
        assert not kept.done()
        with pytest.raises(StorageUnavailable):
            await publisher.push(session, "a", "json", b"{}", 7)
        logged_on(session)
        await publisher.push(session, "a", "json", b"{}", 5)
        # An answer about the previous session does not apply to this one.
        answering(publisher, lambda: [("refused", session.slot, session.serial - 1)])
        assert session.logon is not None

    with_session(runtime, test)


def test_a_refusal_while_the_next_message_waits_for_room(runtime: Runtime) -> None:
    async def test(publisher: Publisher, session: Session) -> None:
        async def waits(*_: object) -> bool:
            session.begin_anew()
            return True

        publisher._lay_out = waits  # type: ignore[method-assign]
        with pytest.raises(StorageUnavailable):
            await publisher.push(session, "a", "json", b"{}", 5)

    with_session(runtime, test)


def test_an_answer_is_read_before_its_publish_counts_as_done(runtime: Runtime) -> None:
    """The core answers before it frees the ring, so the answer must be read before the free ring is noticed."""

    async def test(publisher: Publisher, session: Session) -> None:
        core = publisher._core

        def consumes_meanwhile() -> list[tuple[object, ...]]:
            core.ring.pop_all()
            return []

        future = await publisher.push(session, "plain", "json", b"{}", 5)
        core.publish_pushed()
        answering(publisher, consumes_meanwhile)
        assert not future.done()
        answering(publisher, lambda: [("refused", session.slot, session.serial)])
        assert isinstance(future.exception(), StorageUnavailable)
        logged_on(session)
        future = await publisher.push(session, "plain", "json", b"{}", 5)
        core.publish_pushed()
        answering(publisher, consumes_meanwhile)
        answering(publisher, list)
        assert future.result() is None

    with_session(runtime, test)
