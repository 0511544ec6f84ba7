"""Sessions of asyncio clients: an event loop that runs one step of a session at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from perf.clients.base import Session


class AsyncSession(ABC):
    """The steps of a session as coroutines; `Session` describes them."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def publish(self, bodies: Sequence[bytes]) -> None: ...

    @abstractmethod
    async def listen(self, count: int) -> None: ...

    @abstractmethod
    async def heard(self) -> list[bytes]: ...

    @abstractmethod
    async def replay(self, count: int) -> list[bytes]: ...

    @abstractmethod
    async def work(self, count: int) -> list[bytes]: ...

    @abstractmethod
    async def close(self) -> None: ...


class LoopSession(Session):
    """An asyncio session in an event loop of its own, asyncio's default loop."""

    def __init__(self, session: AsyncSession) -> None:
        self.runner = asyncio.Runner()
        self.session = session
        self.runner.run(session.open())

    def publish(self, bodies: Sequence[bytes]) -> None:
        self.runner.run(self.session.publish(bodies))

    def listen(self, count: int) -> None:
        self.runner.run(self.session.listen(count))

    def heard(self) -> list[bytes]:
        return self.runner.run(self.session.heard())

    def replay(self, count: int) -> list[bytes]:
        return self.runner.run(self.session.replay(count))

    def work(self, count: int) -> list[bytes]:
        return self.runner.run(self.session.work(count))

    def close(self) -> None:
        self.runner.run(self.session.close())
        self.runner.close()
