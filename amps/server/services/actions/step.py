"""The interface of a step, and the objects that it may use.

A module of `Do` or `If` is one subclass of Step, which is made once. Its `run` receives the values of its options, with
variables substituted and parsed, and the run that it is part of. It may set variables of the run. It raises StepFailure
when it cannot do its work. That, or any other failure, ends the run with a record in the log; Interrupted ends it
without one.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from amps.config import ServerConfig
from amps.server.eventlog import EventLog
from amps.server.services.actions.variables import TEXT_LENGTH_MAX, VARIABLES_MAX
from amps.server.services.core_requests import CoreRequests
from amps.server.services.publisher import Publisher
from amps.server.services.queue_clearing import QueueClearing
from amps.server.services.replication_requests import ReplicationRequests
from amps.server.services.sow_clearing import SowClearing


class StepFailure(Exception):
    """A step has failed; the text has the reason."""


class Interrupted(Exception):
    """The run cannot continue for now. It is begun again by its caller, and not reported as a failure."""


class Publishes(Protocol):
    """A publisher of messages."""

    async def publish(self, topic: str, message_type: str, data: bytes, delay_ms: int | None = None) -> None:
        """Publish one message, which queues deliver after a delay. Raises PublishFailure; Interrupted."""


@dataclass(slots=True)
class Run:
    """One run of an action. `depth`: number of events that led to it, each raised by the one before. `publisher`: the
    publisher for its steps; None: the publisher of the process.
    """

    variables: dict[str, str]
    place: str
    depth: int = 0
    publisher: Publishes | None = None

    def set(self, name: str, value: str) -> None:
        """Set a variable for later steps. Raises StepFailure."""
        if len(value) > TEXT_LENGTH_MAX:
            raise StepFailure(f"the value of {name} would be longer than {TEXT_LENGTH_MAX} characters")
        if len(self.variables) >= VARIABLES_MAX and name not in self.variables:
            raise StepFailure(f"there are more than {VARIABLES_MAX} variables")
        self.variables[name] = value


@dataclass(slots=True)
class Environment:
    """The objects of the services process that steps may use.

    `raise_event(event, run)` queues the actions of an event; it raises StepFailure. `ask_for_shutdown(cause)` makes the
    supervisor stop the instance, `switch(what, enabled)` makes it switch authentication or entitlement. `stopping` is
    set when work in threads should be abandoned. `commands`: the process groups of running commands, which end with the
    process. `queues`, `states` (SOW topics) and `replication`: None if there are none. `uptime_s()`: since the start of
    the instance.
    """

    config: ServerConfig
    log: EventLog
    publisher: Publisher
    core: CoreRequests
    raise_event: Callable[[str, Run], None]
    ask_for_shutdown: Callable[[str], None]
    switch: Callable[[str, bool], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    commands: set[int] = field(default_factory=set)
    queues: QueueClearing | None = None
    states: SowClearing | None = None
    replication: ReplicationRequests | None = None
    uptime_s: Callable[[], float] = lambda: float("inf")


class Step(ABC):
    """One module of `Do` or `If`."""

    module: ClassVar[str]
    """Its name in the configuration."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    @abstractmethod
    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        """Run the step. False: the run ends here without a failure, because a condition is false."""
