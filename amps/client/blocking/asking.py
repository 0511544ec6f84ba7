"""Calls of the application's code that a time limit bounds: a server chooser, a delay strategy, an authenticator.

Nobody can end a call of a function. With a time limit, another thread makes it (`amps-ask:<client>`). When the time is
over the caller goes on without it, and what the function returns later is dropped.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from amps.client.blocking.changes import Signal
from amps.client.blocking.deadlines import left_until
from amps.client.blocking.wire import Wire
from amps.client.errors import TimedOutException

T = TypeVar("T")


def ask(wire: Wire, call: Callable[[], T], what: str, deadline: float | None) -> T:
    """Return what a function of the application returns. Raises what it raises, or TimedOutException."""
    if deadline is None:
        return call()
    answer: list[Any] = []
    failure: list[BaseException] = []
    answered = Signal()
    context = contextvars.copy_context()

    def work() -> None:
        thread = threading.current_thread()
        wire.asked.add(thread)
        try:
            answer.append(context.run(call))
        except BaseException as error:
            failure.append(error)
        finally:
            wire.asked.discard(thread)
            answered.set()

    threading.Thread(target=work, name=f"amps-ask:{wire.name}", daemon=True).start()
    if not answered.wait(left_until(deadline)):
        raise TimedOutException(f"{what} did not answer in time")
    if failure:
        raise failure.pop()
    result: T = answer[0]
    return result
