"""The interface of the worker that commands use."""

import asyncio
from typing import Protocol

from amps._core.wire.topics import TopicTable
from amps.config import ServerConfig
from amps.server.clock import Clock
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.filters import FilterCompiler
from amps.server.topics import TopicMatcher
from amps.server.transport.ack_schedule import AckSchedule
from amps.server.transport.feeds import Feeds
from amps.server.transport.persisted_waits import PersistedWaits
from amps.server.transport.publishers import Publishers
from amps.server.transport.queues import Queues
from amps.server.transport.scans import Scans
from amps.server.transport.session import TransactionAnswers


class WorkerContext(Protocol):
    """A worker, as the commands of its sessions use it.

    `trace`: commands and answers are logged. `conflated`: persisted acknowledgements of numbered messages are
    conflated.
    """

    config: ServerConfig
    runtime: Runtime
    index: int
    log: EventLog
    loop: asyncio.AbstractEventLoop
    clock: Clock
    trace: bool
    has_journal: bool
    conflated: bool
    matcher: TopicMatcher
    topics: TopicTable
    filters: FilterCompiler
    core: CoreLink
    persisted: PersistedWaits
    ack_schedule: AckSchedule
    publishers: Publishers
    feeds: Feeds
    queues: Queues
    scans: Scans
    transacting: dict[TransactionAnswers, None]
    """The connections with transactions that are not answered yet."""

    def now_s(self) -> float:
        """The instance's clock that never goes back."""

    def schedule(self) -> None:
        """Request a turn."""

    def spill_token(self) -> str:
        """A name for a new spill file."""

    def new_subscription_number(self) -> int:
        """A number for a subscription, by which the administration interface names it."""
