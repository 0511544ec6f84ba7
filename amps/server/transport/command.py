"""One command of a client that is being carried out: a coroutine that reads from top to bottom, and waits on its way.

The coroutine goes on inside the very call that says that its wait is over, not in a later round of the event loop: a
subscription is answered at the place of the log where it was entered, before anything else is read there. A wait that
is over at once does not suspend it.

- The session's input is held while the command is carried out, so that what was sent after it is ordered after it;
  unless it is run with `holds=False`, or lets the input go by itself before its end.
- After each wait it goes on only if the session is not closed. A session that closes ends its commands: what their
  waits hold then keeps nothing alive.
- CommandFailure refuses the command, in the acknowledgements that were not sent yet. LogDamaged disconnects the client.
  Any other exception goes to the caller that brought the end of the wait.
"""

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

from amps._core.expressions.machine import Filter
from amps._core.journal.reader import LogDamaged
from amps.expressions import ExpressionError
from amps.server.shared.journal_view import JournalView
from amps.server.transport.answering import Header, refuse, wanted_acks
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure, bad_filter
from amps.server.transport.searches import Search
from amps.server.transport.session import Phase, Session

T = TypeVar("T")

_NONE_YET: Final = object()


class Command:
    """A command, as its coroutine knows it. While it is suspended, its session knows it as one that is under way."""

    __slots__ = ("_connection", "_coroutine", "_holds", "_result", "_suspended", "_worker", "header")

    def __init__(self, connection: Session, worker: WorkerContext, header: Header) -> None:
        self.header = header
        self._connection = connection
        self._worker = worker
        self._coroutine: Coroutine[None, None, None] | None = None
        self._holds = False
        self._suspended = False
        self._result: Any = _NONE_YET

    # --- carrying it out --------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[None, None, None], *, holds: bool = True) -> None:
        """Carry it out, as far as it goes without waiting. `holds`: input is held until it ends."""
        self._coroutine = coroutine
        if holds:
            self._holds = True
            self._connection.hold()
        self._go_on(coroutine)

    def release(self) -> None:
        """Let the input go on, before the end; behind refusals that must be told first."""
        connection = self._connection
        if self._holds and connection.phase is not Phase.CLOSED:
            self._holds = False
            if connection.acks.crowded:
                self._worker.core.release_later(connection)
            else:
                connection.release()

    def cancel(self) -> None:
        """The session is closed: the command, which is suspended, never goes on."""
        self._suspended = False
        self._connection.under_way.discard(self)
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()

    def _go_on(self, coroutine: Coroutine[None, None, None]) -> None:
        """Let the coroutine go on until it is suspended, or ends."""
        connection = self._connection
        try:
            coroutine.send(None)
        except StopIteration:
            pass
        except CommandFailure as failure:
            self._refuse(failure)
        except LogDamaged as damage:
            self._worker.feeds.journal_damaged(connection, damage)
        else:
            if connection.phase is Phase.CLOSED:
                self.cancel()
            else:
                self._suspended = True
                connection.under_way.add(self)
            return
        self._coroutine = None
        self.release()

    def _over(self, result: Any) -> None:
        """Its wait is over."""
        coroutine = self._coroutine
        if coroutine is None:
            return
        if not self._suspended:
            self._result = result  # `wait` has just begun it, and looks
        elif self._connection.phase is Phase.CLOSED:
            self.cancel()
        else:
            self._result = result
            self._suspended = False
            self._connection.under_way.discard(self)
            self._go_on(coroutine)

    def _refuse(self, failure: CommandFailure) -> None:
        """Answer that it failed; `received` was sent when it came."""
        if self._connection.phase is not Phase.CLOSED:
            unanswered = wanted_acks(self.header) - {"received"}
            refuse(self._connection, {**self.header, "ack_type": ",".join(unanswered)}, failure)

    # --- what it may wait for ---------------------------------------------------------------------------------

    @types.coroutine
    def wait(self, begin: Callable[[Callable[[T], None]], object]) -> Generator[None, None, T]:
        """Wait for a result. `begin` is given what must be called once with it, at once or later."""
        connection = self._connection
        self._result = _NONE_YET
        if connection.phase is not Phase.CLOSED:
            begin(self._over)
        if self._result is _NONE_YET or connection.phase is Phase.CLOSED:
            yield
        result: T = self._result
        return result

    def until(self, begin: Callable[[Callable[[], None]], object]) -> Awaitable[None]:
        """Wait for something that has no result."""
        return self.wait(lambda over: begin(partial(over, None)))

    async def filter(self, text: str) -> Filter:
        """The filter of a text. Raises CommandFailure."""
        worker = self._worker
        made: Filter | ExpressionError = await self.wait(
            lambda over: worker.filters.obtain(text, over, worker.loop)
        )
        if isinstance(made, ExpressionError):
            raise bad_filter(made)
        return made

    def consumed(self) -> Awaitable[None]:
        """The core has taken everything that was published before."""
        core = self._worker.core
        return self.until(partial(core.when_consumed, core.ring.pushed))

    def durable(self, position: int) -> Awaitable[None]:
        """The journal is durable up to a log position."""
        return self.until(partial(self._worker.core.when_durable, position))

    def looked_up(self, make: Callable[[JournalView], Search]) -> Awaitable[None]:
        """A lookup in the journal has ended, if there is a journal."""
        return self.until(partial(self._worker.feeds.look_up, make, self._connection))
