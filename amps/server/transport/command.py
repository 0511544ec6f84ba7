"""A command of a client that is being carried out: a coroutine that reads from top to bottom and may wait.

The coroutine continues inside the call that ends its wait, not in a later round of the event loop. So a subscription
is answered at the place of the log where it was entered, before any further record is read there. A wait that ends at
once does not suspend the coroutine.

- The session's input is held while the command is carried out, so that later commands are ordered after it. Exceptions
  are a command run with `holds=False`, and a command that calls `release` before its end.
- After each wait the command continues only if the session is not closed. A session that closes ends its commands, so
  that the callbacks of their waits keep no object alive.
- CommandFailure refuses the command, in the acknowledgements that were not sent yet. LogDamaged disconnects the client.
  Any other exception propagates to the caller that ended the wait.
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
    """A command, as its coroutine uses it. While it is suspended, it is in `under_way` of its session."""

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
        """Run the coroutine until it waits. `holds`: input is held until the command ends."""
        self._coroutine = coroutine
        if holds:
            self._holds = True
            self._connection.hold()
        self._go_on(coroutine)

    def release(self) -> None:
        """Release the input before the command ends, but after refusals that must be sent first."""
        connection = self._connection
        if self._holds and connection.phase is not Phase.CLOSED:
            self._holds = False
            if connection.acks.crowded:
                self._worker.core.release_later(connection)
            else:
                connection.release()

    def cancel(self) -> None:
        """Close the suspended coroutine: the session is closed."""
        self._suspended = False
        self._connection.under_way.discard(self)
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()

    def _go_on(self, coroutine: Coroutine[None, None, None]) -> None:
        """Run the coroutine until it is suspended or ends."""
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
        """Continue with the result of a wait."""
        coroutine = self._coroutine
        if coroutine is None:
            return
        if not self._suspended:
            self._result = result  # called inside `begin`: `wait` checks for the result
        elif self._connection.phase is Phase.CLOSED:
            self.cancel()
        else:
            self._result = result
            self._suspended = False
            self._connection.under_way.discard(self)
            self._go_on(coroutine)

    def _refuse(self, failure: CommandFailure) -> None:
        """Answer with a failure. The `received` acknowledgement has been sent before."""
        if self._connection.phase is not Phase.CLOSED:
            unanswered = wanted_acks(self.header) - {"received"}
            refuse(self._connection, {**self.header, "ack_type": ",".join(unanswered)}, failure)

    # --- waits ------------------------------------------------------------------------------------------------

    @types.coroutine
    def wait(self, begin: Callable[[Callable[[T], None]], object]) -> Generator[None, None, T]:
        """Wait for a result. `begin` receives the function that must be called once with it, at once or later."""
        connection = self._connection
        self._result = _NONE_YET
        if connection.phase is not Phase.CLOSED:
            begin(self._over)
        if self._result is _NONE_YET or connection.phase is Phase.CLOSED:
            yield
        result: T = self._result
        return result

    def until(self, begin: Callable[[Callable[[], None]], object]) -> Awaitable[None]:
        """Wait for an event without a result."""
        return self.wait(lambda over: begin(partial(over, None)))

    async def filter(self, text: str) -> Filter:
        """Obtain the compiled filter of a text. Raises CommandFailure."""
        worker = self._worker
        made: Filter | ExpressionError = await self.wait(
            lambda over: worker.filters.obtain(text, over, worker.loop)
        )
        if isinstance(made, ExpressionError):
            raise bad_filter(made)
        return made

    def consumed(self) -> Awaitable[None]:
        """Wait until the core has read everything that was published before."""
        core = self._worker.core
        return self.until(partial(core.when_consumed, core.ring.pushed))

    def durable(self, position: int) -> Awaitable[None]:
        """Wait until the journal is durable up to a log position."""
        return self.until(partial(self._worker.core.when_durable, position))

    def persisted(self, position: int) -> Awaitable[None]:
        """Wait until all messages of this client before a log position are fully persisted."""
        return self.until(partial(self._worker.persisted.when_persisted, self._connection, position))

    def looked_up(self, make: Callable[[JournalView], Search]) -> Awaitable[None]:
        """Wait for the end of a lookup in the journal, if there is a journal."""
        return self.until(partial(self._worker.feeds.look_up, make, self._connection))
