"""Content filters of one worker: what evaluating takes, and compiling them.

Benches keep, per message type, the extractor that finds fields; values and facts of the current message are shared by
all, because one message is worked on at a time. Texts are compiled once for as long as anybody uses them, and filters
that differ in blanks or quotes only are one and the same, which FilterSet evaluates once per message.

Parsing a text takes time in proportion to its length. What is longer than a few lines is parsed in a thread of its own,
one after the other, while the worker goes on; the command that brought it waits.
"""

import asyncio
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Mapping

from amps._core.effort import searches_given_up
from amps._core.fields import FieldValues
from amps._core.filter_set import Filter, FilterBench
from amps._core.message_context import MessageContext
from amps._core.topic_table import TopicEntry
from amps.expressions import ExpressionError
from amps.expressions.filters import compile_filter
from amps.expressions.functions import SHIPPED, Functions
from amps.messages import MessageType
from amps.server.eventlog import EventLog
from amps.server.transport.bookmarks import format_bookmark
from amps.server.transport.failures import CommandFailure
from amps.server.transport.publishers import Publishers

INLINE_CHARACTERS = 2000
"""Longer texts are parsed beside the event loop: this many take a few milliseconds."""
SWITCH_INTERVAL_S = 0.0005
"""How long the event loop waits for the parsing thread at most, each time it has something to do."""
MEMORY_BYTES_MAX = 256 << 20
"""How much text may be made of one message."""


class Benches:
    """The benches of one worker, by message type, and what goes wrong on them."""

    def __init__(
        self,
        types: Mapping[str, MessageType],
        instance: str,
        group: str,
        log: EventLog,
        publishers: Publishers | None = None,
        functions: Functions = SHIPPED,
    ) -> None:
        """`publishers`: who knows them; nobody: what expressions ask about them is NULL."""
        self._types = types
        self._publishers = publishers
        self._log = log
        self._values = FieldValues(MEMORY_BYTES_MAX)
        self._context = MessageContext(
            instance.encode("utf-8", "surrogatepass"), group.encode("utf-8", "surrogatepass")
        )
        self._benches: dict[str, FilterBench] = {}
        self._reported: dict[str, tuple[int, int, int]] = {}
        self._functions = functions
        self._failures: dict[str, int] = {}
        self._given_up = searches_given_up()

    def bench(self, message_type: str) -> FilterBench:
        """The bench of a message type. In messages of a type that is not configured any more no field is found."""
        found = self._benches.get(message_type)
        if found is None:
            kind = self._types.get(message_type) or self._types["binary"]
            found = FilterBench(kind.extractor(), self._values, self._context, self._tell_publisher)
            self._benches[message_type] = found
        return found

    def _tell_publisher(self, name_hash: int) -> None:
        """Put what is known of a publisher into the context of the current message."""
        known = self._publishers.find(name_hash) if self._publishers is not None else None
        for fact, value in (known or {}).items():
            self._context.set(fact, value.encode("utf-8", "surrogatepass"))

    def report(self) -> None:
        """Log what could not be read or evaluated since the last call, one line for each type or function."""
        for message_type, bench in self._benches.items():
            unreadable, exhausted, cut_short = self._reported.get(message_type, (0, 0, 0))
            now = bench.unreadable, bench.exhausted, bench.extractor.messages_cut_short()
            if now == (unreadable, exhausted, cut_short):
                continue
            self._reported[message_type] = now
            if bench.unreadable != unreadable and isinstance(bench.last_unreadable, tuple):
                entry, publisher, sequence = bench.last_unreadable
                assert isinstance(entry, TopicEntry)
                self._log.log(
                    "14-0003",
                    message_type=message_type,
                    topic=entry.name,
                    count=bench.unreadable - unreadable,
                    bookmark=format_bookmark(publisher, sequence),
                )
            if bench.exhausted != exhausted:
                self._log.log("14-0004", message_type=message_type, count=bench.exhausted - exhausted)
            if now[2] != cut_short:
                self._log.log("14-0007", message_type=message_type, count=now[2] - cut_short)
        given_up = searches_given_up()
        if given_up != self._given_up:
            self._log.log("14-0006", count=given_up - self._given_up)
            self._given_up = given_up
        for name, function in self._functions.own.items():
            failures = function.failures - self._failures.get(name, 0)
            if failures:
                self._failures[name] = function.failures
                self._log.log("14-0005", function=name, count=failures, reason=function.last_failure)


class FilterCompiler:
    """From texts to filters."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._by_text: weakref.WeakValueDictionary[str, Filter] = weakref.WeakValueDictionary()
        self._by_meaning: weakref.WeakValueDictionary[str, Filter] = weakref.WeakValueDictionary()
        self._waiting: queue.SimpleQueue[tuple[str, Callable[[], object], list[Filter | ExpressionError]]]
        self._thread: threading.Thread | None = None

    def obtain(
        self,
        text: str,
        then: Callable[[Filter], None],
        failed: Callable[[CommandFailure], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Compile a text and go on with `then`, at once or later; or with `failed` if it is no filter."""
        known = self._by_text.get(text)
        if known is not None:
            then(known)
            return
        result: list[Filter | ExpressionError] = []

        def finish() -> None:
            made = result[0]
            if isinstance(made, ExpressionError):
                failed(CommandFailure("bad filter", str(made)))
            else:
                then(self._only(text, made))

        if len(text) <= INLINE_CHARACTERS:
            self._compile_into(text, result)
            finish()
        else:
            self._compile_beside(text, result, lambda: loop.call_soon_threadsafe(finish))

    def compile(self, text: str) -> Filter:
        """The filter of a text in the configuration, which was checked at the start."""
        return self._only(text, compile_filter(text, self._functions))

    def _only(self, text: str, made: Filter) -> Filter:
        """The one filter of that meaning."""
        only = self._by_meaning.setdefault(made.canonical, made)
        self._by_text[text] = only
        return only

    def _compile_beside(
        self, text: str, result: list[Filter | ExpressionError], done: Callable[[], object]
    ) -> None:
        if self._thread is None:
            self._waiting = queue.SimpleQueue()
            # The event loop would wait for five milliseconds whenever it has something to do while a text is parsed.
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
        except Exception as error:  # the command must be answered, whatever happened to its text
            result.append(ExpressionError(f"it cannot be compiled: {error!r}", 0, text[:100]))
