"""Deleting records of SOW topics by filter, by the server itself (sow.md §6, §22).

It works like a client's `sow_delete` with a filter: a query finds the keys of the matches, a few at a time, and the
core deletes those that have not changed since. Those that have are compared with the filter again.
"""

import asyncio
import time
from collections.abc import Callable

import numpy

from amps._core.delivery.results import SCAN_DONE, SCAN_MISSING, SCAN_WAITS, StateScan
from amps._core.expressions.machine import FilterSet
from amps._core.journal.reader import FrameCache, LogDamaged, LogDirectory
from amps._core.wire.topics import TopicEntry
from amps.config import ServerConfig
from amps.config.model_sow import SowTopicConfig
from amps.expressions import ExpressionError
from amps.expressions.filters import compile_filter
from amps.journal.names import reading_places
from amps.server.runtime import Runtime
from amps.server.services.log_reading import LogReading
from amps.server.services.publisher import Publisher
from amps.server.services.queue_clearing import ClearingFailure
from amps.server.shared.sow_state import EVERY_JOURNAL, SowStates
from amps.topic_expressions import BadTopicExpression, topic_predicate

KEYS_PER_RECORD = 2048
ROUNDS_MAX = 20
"""A record that changes all the time is left after so many rounds: it then counts as before its last change."""
STEP_NS = 1_000_000
WAIT_S = 0.001
CACHE_BYTES = 16 << 20
KEY = numpy.dtype([("key", "<u8"), ("seen_txid", "<u8")])
"""A RequestedKey of amps/_core/sow/slots.pxd."""


class SowClearing:
    """Deletes by filter. It is made in the services process of an instance with SOW topics."""

    def __init__(self, config: ServerConfig, runtime: Runtime, publisher: Publisher) -> None:
        self._config = config
        self._publisher = publisher
        self._log_reading = LogReading()
        self._states = SowStates(config, runtime, publisher.core, _journals(config))

    def concerns(self, topic: str, message_type: str) -> bool:
        """Whether a topic stands for SOW topics. Raises ClearingFailure."""
        return bool(self._matching(topic, message_type))

    def _matching(self, topic: str, message_type: str) -> tuple[SowTopicConfig, ...]:
        try:
            return self._states.names.matching(topic, message_type)
        except BadTopicExpression as problem:
            raise ClearingFailure(f"the expression for topics cannot be used: {problem}") from None

    async def clear(self, topic: str, message_type: str, filter_text: str) -> None:
        """Delete the records that match a filter in the SOW topics that a topic stands for; durable when it returns.

        Raises ClearingFailure, PublishFailure.
        """
        filters = FilterSet(self._publisher.evaluations.of_type(message_type))
        try:
            filters.add(compile_filter(filter_text, self._config.functions), None)
        except ExpressionError as problem:
            raise ClearingFailure(f"the filter cannot be used: {problem}") from None
        predicate = topic_predicate(topic, self._config.regex_topic_support)
        for config in self._matching(topic, message_type):
            try:
                await self._clear(config, predicate or topic.__eq__, filters)
            except (LogDamaged, OSError, ValueError) as problem:
                raise ClearingFailure(f"a record of {config.name!r} cannot be read: {problem}") from None
            finally:
                if self._states.places is not None:
                    self._states.places.forget(EVERY_JOURNAL)

    async def _clear(self, config: SowTopicConfig, wanted: Callable[[str], bool], filters: FilterSet) -> None:
        changed: list[int] | None = None
        if self._states.places is not None:
            self._states.places.begin_period()
        for _ in range(ROUNDS_MAX):
            changed = await self._round(config, wanted, filters, changed)
            if not changed:
                return

    def _entries(self, config: SowTopicConfig, wanted: Callable[[str], bool]) -> list[TopicEntry | None]:
        """The topics that are looked at, by their numbers in slots; None: records of that one stay. To be called after
        the watermarks of the snapshot were read. Raises OSError, ValueError.
        """
        kind, names = config.message_type, self._states.names
        if config.pattern is None:
            return [self._publisher.entry(config.name, kind)]
        return [
            self._publisher.entry(name, kind) if wanted(name) and names.find(name, kind) is config else None
            for name in self._states.logical_topics(config.number)
        ]

    async def _round(
        self, config: SowTopicConfig, wanted: Callable[[str], bool], filters: FilterSet, keys: list[int] | None
    ) -> list[int]:
        """Delete the matches among some keys, or all. Returns those that have changed meanwhile."""
        view = self._publisher.core.view
        changed: list[int] = []
        with self._states.snapshot() as snapshot:
            view.read()
            snapshot.txid = view.next_txid
            entries = self._entries(config, wanted)
            first = next((entry for entry in entries if entry is not None), None)
            if first is None:
                return []
            scan = StateScan(
                self._states.reader(config.number),
                first,
                filters,
                snapshot.txid,
                keys,
                collects_keys=True,
                logical=None
                if config.pattern is None
                else [None if entry is None else (entry, b"") for entry in entries],
            )
            state = None
            while state != SCAN_DONE:
                view.read()
                state = scan.run(view.journal_written, time.monotonic_ns() + STEP_NS)
                for number, found in scan.take_keys().items():
                    changed += await self._delete(entries[number] or first, bytes(found))
                if state == SCAN_MISSING:
                    await self._log_reading.have_read(*scan.missing)
                else:
                    await asyncio.sleep(WAIT_S if state == SCAN_WAITS else 0)
        return changed

    async def _delete(self, entry: TopicEntry, found: bytes) -> list[int]:
        """Delete the keys that a scan found, in any order. Returns those that have changed meanwhile."""
        changed: list[int] = []
        keys = numpy.frombuffer(found, KEY)
        for at in range(0, len(keys), KEYS_PER_RECORD):
            part = keys[at : at + KEYS_PER_RECORD]
            ordered = part[numpy.argsort(part["key"])]
            changed += (await self._publisher.delete(entry, ordered.tobytes()))[1]
        return changed


def _journals(config: ServerConfig) -> LogDirectory | None:
    settings = config.transaction_log
    if settings is None:
        return None
    first, *more = reading_places(settings.journal_directory, settings.journal_archive_directory, config.name)
    return LogDirectory(*first, lambda *_: None, more, FrameCache(CACHE_BYTES))
