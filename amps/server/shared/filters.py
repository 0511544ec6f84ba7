"""Compiling the content filters of one worker. `amps.server.evaluation_contexts` has the objects for evaluating them.

A text is compiled once for as long as its filter is in use. Filters that differ only in blanks or quotes are one
object, which FilterSet evaluates once per message.

Parsing a text takes time in proportion to its length. A text longer than a few lines is parsed in a separate thread,
one after the other, while the worker continues; the command that needs the filter waits.
"""

import asyncio
import queue
import sys
import threading
import weakref
from collections.abc import Callable

from amps._core.expressions.machine import Filter
from amps.expressions import ExpressionError
from amps.expressions.filters import compile_filter
from amps.expressions.functions import Functions

INLINE_CHARACTERS = 2000
"""Longer texts are parsed outside the event loop: this many characters take a few milliseconds."""
SWITCH_INTERVAL_S = 0.0005
"""Longest time that the event loop waits for the parsing thread, each time it has work."""


class FilterCompiler:
    """Compiles texts to filters."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._by_text: weakref.WeakValueDictionary[str, Filter] = weakref.WeakValueDictionary()
        self._by_meaning: weakref.WeakValueDictionary[str, Filter] = weakref.WeakValueDictionary()
        self._waiting: queue.SimpleQueue[tuple[str, Callable[[], object], list[Filter | ExpressionError]]]
        self._thread: threading.Thread | None = None

    def obtain(
        self,
        text: str,
        then: Callable[[Filter | ExpressionError], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Compile a text, and pass the filter, or the error in the text, to `then`: at once or later."""
        known = self._by_text.get(text)
        if known is not None:
            then(known)
            return
        result: list[Filter | ExpressionError] = []

        def finish() -> None:
            made = result[0]
            then(made if isinstance(made, ExpressionError) else self._only(text, made))

        if len(text) <= INLINE_CHARACTERS:
            self._compile_into(text, result)
            finish()
        else:
            self._compile_beside(text, result, lambda: loop.call_soon_threadsafe(finish))

    def compile(self, text: str) -> Filter:
        """The filter of a text in the configuration, which was checked at the start."""
        return self._only(text, compile_filter(text, self._functions))

    def _only(self, text: str, made: Filter) -> Filter:
        """The single filter of that meaning."""
        only = self._by_meaning.setdefault(made.canonical, made)
        self._by_text[text] = only
        return only

    def _compile_beside(
        self, text: str, result: list[Filter | ExpressionError], done: Callable[[], object]
    ) -> None:
        if self._thread is None:
            self._waiting = queue.SimpleQueue()
            # By default the event loop would wait for five milliseconds each time it has work while a text is parsed.
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._thread = threading.Thread(target=self._compile_waiting, name="filter compiler", daemon=True)
            self._thread.start()
        self._waiting.put((text, done, result))

    def _compile_waiting(self) -> None:
        while True:
            text, done, result = self._waiting.get()
            self._compile_into(text, result)
            try:
                done()
            except RuntimeError:
                return  # the event loop has ended

    def _compile_into(self, text: str, result: list[Filter | ExpressionError]) -> None:
        try:
            result.append(compile_filter(text, self._functions))
        except ExpressionError as error:
            result.append(error)
        except Exception as error:  # the command must be answered after any failure
            result.append(ExpressionError(f"it cannot be compiled: {error!r}", 0, text[:100]))
