"""One command of a client that is being carried out: a coroutine that reads from top to bottom, and waits on its way.

What a command waits for is a `Wait`. Its coroutine goes on inside the very call that says that the wait is over, not in
a later round of the event loop: a subscription is answered at the place of the log where it was entered, before
anything else is read there. A wait that is over at once costs no round either.

- The session's input is held while the command is carried out, so that what was sent after it is ordered after it;
  unless it is run with `holds=False`, or lets the input go by itself before its end.
- After each wait it goes on only if the session is not closed. A session that closes ends its commands: whatever their
  waits hold then refers to nothing any more.
- CommandFailure refuses the command, in the acknowledgements that were not sent yet. LogDamaged disconnects the client.
  Any other exception goes to the caller, who brought the end of the wait.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

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


class Wait(Generic[T]):
    """Something that a command can await."""

    __slots__ = ("begin",)

    def __init__(self, begin: Callable[[Callable[[T], None]], object]) -> None:
        """`begin`: begins it, and is given what must be called once with the result, at once or later."""
        self.begin = begin

    def __await__(self) -> "Generator[Wait[T], T, T]":
        return (yield self)


def until(begin: Callable[[Callable[[], None]], object]) -> Wait[None]:
    """A wait without a result."""
    return Wait(lambda over: begin(partial(over, None)))


class Command:
    """A command, as its coroutine knows it."""

    def __init__(self, connection: Session, worker: WorkerContext, header: Header) -> None:
        self.header = header
        self._connection = connection
        self._worker = worker
        self._coroutine: Coroutine[Wait[Any], Any, None] | None = None
        self._holds = False
        self._executing = False
        self._beginning = False
        self._results: list[Any] = []
        """The result of a wait that was over while it was begun."""

    # --- carrying it out --------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Wait[Any], Any, None], *, holds: bool = True) -> None:
        """Carry it out, as far as it goes without waiting. `holds`: input is held until it ends."""
        self._coroutine = coroutine
        self._connection.under_way.add(self)
        if holds:
            self._holds = True
            self._connection.hold()
        self._go_on(None)

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
        """The session is closed: the command never goes on."""
        coroutine = self._forget()
        if coroutine is not None and not self._executing:
            coroutine.close()

    def _forget(self) -> Coroutine[Wait[Any], Any, None] | None:
        coroutine, self._coroutine = self._coroutine, None
        self._connection.under_way.discard(self)
        return coroutine

    def _over(self, result: Any) -> None:
        """Its wait is over."""
        if self._connection.phase is Phase.CLOSED:
            self.cancel()
        elif self._beginning:
            self._results.append(result)
        elif self._coroutine is not None:
            self._go_on(result)

    def _go_on(self, result: Any) -> None:
        """Let the coroutine go on, through all waits that are over at once."""
        error: Exception | None = None
        try:
            while (wait := self._execute(result, error)) is not None:
                error = None
                self._beginning = True
                try:
                    wait.begin(self._over)
                except Exception as raised:
                    error = raised
                    continue
                finally:
                    self._beginning = False
                if not self._results:
                    return
                result = self._results.pop()
        finally:
            error = None  # it refers to this frame, and would keep alive what it met

    def _execute(self, result: Any, error: Exception | None) -> Wait[Any] | None:
        """Let the coroutine go on to its next wait. None: it has ended."""
        coroutine = self._coroutine
        if coroutine is None:
            return None  # the session was closed while a wait was begun
        self._executing = True
        try:
            wait = coroutine.send(result) if error is None else coroutine.throw(error)
        except StopIteration:
            pass
        except CommandFailure as failure:
            self._refuse(failure)
        except LogDamaged as damage:
            self._worker.feeds.journal_damaged(self._connection, damage)
        except BaseException:
            self._forget()
            raise
        else:
            if self._coroutine is not None:
                return wait
            coroutine.close()  # the session was closed by what the coroutine did
        finally:
            self._executing = False
            error = None  # as in `_go_on`
        self._forget()
        self.release()
        return None

    def _refuse(self, failure: CommandFailure) -> None:
        """Answer that it failed; `received` was sent when it came."""
        if self._connection.phase is not Phase.CLOSED:
            unanswered = wanted_acks(self.header) - {"received"}
            refuse(self._connection, {**self.header, "ack_type": ",".join(unanswered)}, failure)

    # --- what it may wait for ---------------------------------------------------------------------------------

    async def filter(self, text: str) -> Filter:
        """The filter of a text. Raises CommandFailure."""
        worker = self._worker
        made: Filter | ExpressionError = await Wait(
            lambda over: worker.filters.obtain(text, over, worker.loop)
        )
        if isinstance(made, ExpressionError):
            raise bad_filter(made)
        return made

    def consumed(self) -> Wait[None]:
        """The core has taken everything that was published before."""
        core = self._worker.core
        return until(partial(core.when_consumed, core.ring.pushed))

    def durable(self, position: int) -> Wait[None]:
        """The journal is durable up to a log position."""
        return until(partial(self._worker.core.when_durable, position))

    def looked_up(self, make: Callable[[JournalView], Search]) -> Wait[None]:
        """A lookup in the journal has ended, if there is a journal."""
        return until(partial(self._worker.feeds.look_up, make, self._connection))
