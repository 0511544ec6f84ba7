"""Acknowledging messages of queues by filter, by the server itself (queues.md §8, D-35).

It works like a client's `sow_delete` with a filter. Matching messages are searched for in shared memory and in the log,
a few at a time, and their positions are sent to the core. Leased messages are acknowledged like the others, unless the
queue's leasing is strict. Messages that arrive during the search may be found or not.
"""

import asyncio

from amps._core.expressions.machine import Filter, FilterSet
from amps._core.journal.reader import FrameCache, LogDamaged, LogDirectory
from amps._core.queues.engine import BLOCKS_MAX
from amps._core.queues.manager import SlotMemory, map_read_only
from amps._core.queues.sender import MessageReader, QueueSearch
from amps.config import ServerConfig
from amps.expressions import ExpressionError
from amps.expressions.filters import compile_filter
from amps.journal.names import reading_places
from amps.server.runtime import Runtime
from amps.server.services.log_reading import LogReading
from amps.server.services.publisher import Publisher
from amps.server.shared.queue_names import QueueNames
from amps.topic_expressions import BadTopicExpression

LOG_BYTES_PER_STEP = 1 << 19
CACHE_BYTES = 16 << 20


class ClearingFailure(Exception):
    """Not all matching messages were acknowledged, or none; the text has the reason."""


class QueueClearing:
    """Acknowledges by filter. It is made in the services process of an instance with queues."""

    def __init__(self, config: ServerConfig, runtime: Runtime, publisher: Publisher) -> None:
        self._config = config
        self._runtime = runtime
        self._publisher = publisher
        self._names = QueueNames(config)
        self._memory: SlotMemory | None = None
        self._directory: LogDirectory | None = None
        self._log_reading = LogReading()

    def concerns(self, topic: str, message_type: str) -> bool:
        """Whether a topic stands for queues. Raises ClearingFailure."""
        try:
            return bool(self._names.matching(topic, message_type, literal=False))
        except BadTopicExpression as problem:
            raise ClearingFailure(f"the expression for topics cannot be used: {problem}") from None

    async def clear(self, topic: str, message_type: str, filter_text: str) -> None:
        """Acknowledge the messages that match a filter in the queues that a topic stands for; durable when it returns.

        Raises ClearingFailure, PublishFailure.
        """
        try:
            queues = self._names.matching(topic, message_type, literal=False)
            filter_ = compile_filter(filter_text, self._config.functions)
        except BadTopicExpression as problem:
            raise ClearingFailure(f"the expression for topics cannot be used: {problem}") from None
        except ExpressionError as problem:
            raise ClearingFailure(f"the filter cannot be used: {problem}") from None
        if not queues:
            raise ClearingFailure(f"{topic[:100]!r} is no queue of message type {message_type[:100]}")
        for queue in queues:
            await self._clear(queue, filter_)

    async def _clear(self, queue: int, filter_: Filter) -> None:
        config = self._config.queues[queue]
        entry = self._publisher.entry(config.name, config.message_type)
        alone = FilterSet(self._publisher.evaluations.of_type(config.message_type))
        alone.add(filter_, None)
        subject = entry
        if not config.underlying_is_regex:  # filters see the topic of the publish
            subject = self._publisher.entry(config.underlying_topic, config.message_type)
        control = self._runtime.control
        reader = MessageReader(self._journals(), control)
        search = QueueSearch(self._slots(), reader, queue, subject, alone, control.watermarks()[0])
        try:
            while not (found := search.run(LOG_BYTES_PER_STEP)):
                if found is None:
                    await self._log_reading.have_read(*search.missing)
                else:
                    await asyncio.sleep(0)
        except LogDamaged as damage:
            raise ClearingFailure(f"a message of queue {config.name!r} cannot be read: {damage}") from None
        if search.found.count:
            await self._publisher.acknowledge(entry, search.found)

    def _slots(self) -> SlotMemory:
        """The queues' state in shared memory."""
        if self._memory is None:
            runtime = self._runtime
            self._memory = SlotMemory(
                map_read_only(runtime.queue_slots_path),
                map_read_only(runtime.queue_counters_path),
                BLOCKS_MAX,
            )
        return self._memory

    def _journals(self) -> LogDirectory:
        if self._directory is None:
            settings = self._config.transaction_log
            assert settings is not None, "queues need a transaction log"
            first, *more = reading_places(
                settings.journal_directory, settings.journal_archive_directory, self._config.name
            )
            self._directory = LogDirectory(*first, lambda *_: None, more, FrameCache(CACHE_BYTES))
        return self._directory
