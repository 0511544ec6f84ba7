"""The internal publisher, without a core: what it refuses at once, and that a failure of its own is not kept quiet."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.server.runtime import Runtime
from amps.server.services.publisher import Publisher, PublishFailure, Session
from tests.support.services import RecordingLog, loaded


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(tmp_path))
    made = Runtime(1, services=True)
    yield made
    for bell in (made.core_bell, *made.transport_bells):
        os.close(bell.fd)
    made.directory.remove()


def make(runtime: Runtime, failures: list[str]) -> Publisher:
    return Publisher(loaded(log=True).config, runtime, RecordingLog(), failures.append)  # type: ignore[arg-type]


def logged_on(session: Session) -> None:
    """As if the core had answered."""
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
def test_what_cannot_be_published(runtime: Runtime, topic: str, message_type: str, reason: str) -> None:
    async def body() -> None:
        publisher = make(runtime, [])
        publisher.begin(asyncio.get_running_loop())
        logged_on(publisher._own)
        with pytest.raises(PublishFailure, match=reason):
            await publisher.publish(topic, message_type, b"{}")

    asyncio.run(body())


def test_a_failure_of_its_own_is_told(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an action would wait for ever, and every later one of its event."""

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
