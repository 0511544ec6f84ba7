"""Running actions: sources of events, their workers, and the runs (operations.md §9.1, §9.7).

A source is one event: the startup, one signal, one path, one schedule. It has the actions of that event, in the order
of the file, and at most one worker, which takes occurrences and runs the actions to their end. Sources are independent
of each other. Occurrences wait while the worker is busy; a schedule that is due several times meanwhile runs once.

Events of queues come from the log. Their reader (queue_follower.py) has their actions run and waits for them
(`run_actions`); none of them waits here, and none is skipped.

A run executes the steps of an action in order. A condition that is false ends the run, and so does a step that fails,
which is logged. The next action of the event runs in both cases.
"""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amps.config import ActionConfig, ActionModule
from amps.config.action_modules import (
    CONDITIONS,
    PUBLISH_EVENT,
    QUEUE_EVENTS,
    STEPS,
    read_options,
    read_reasons,
    read_signal,
)
from amps.config.schedules import Schedule, read_schedule
from amps.config.schema import NotSupportedYet
from amps.server.services.actions.registry import STEP_CLASSES
from amps.server.services.actions.step import Environment, Interrupted, Publishes, Run, Step, StepFailure
from amps.server.services.actions.variables import always_present, substitute

WAITING_MAX = 1000
EVENT_DEPTH_MAX = 100

STARTUP = "startup"
SHUTDOWN = "shutdown"


class Busy(Exception):
    """Too many occurrences of this event wait already."""


@dataclass(slots=True)
class Occurrence:
    """One occurrence of an event: the variables that it sets, and the future for its end. For a message that left a
    queue also the reasons, and the publisher for its actions.
    """

    variables: Mapping[str, str]
    depth: int = 0
    done: "asyncio.Future[str | None] | None" = None
    reasons: frozenset[str] = frozenset()
    publisher: Publishes | None = None


@dataclass(slots=True)
class Source:
    """One event. `name`: for the log. `reasons`: for each action the reasons for which a message must have expired;
    None: any reason.
    """

    name: str
    schedule: Schedule | None = None
    is_of_messages: bool = False
    waiting_max: int = WAITING_MAX
    actions: list[ActionConfig] = field(default_factory=list)
    reasons: list[frozenset[str] | None] = field(default_factory=list)
    waiting: deque[Occurrence] = field(default_factory=deque)
    worker: asyncio.Task[None] | None = None

    def add(self, action: ActionConfig, reasons: frozenset[str] | None) -> None:
        """Add an action, or another `On` of the last one. An action runs once if any of its `On` match."""
        if not self.actions or self.actions[-1] is not action:
            self.actions.append(action)
            self.reasons.append(reasons)
        else:
            before = self.reasons[-1]
            self.reasons[-1] = None if before is None or reasons is None else before | reasons

    def wanted(self, occurrence: Occurrence) -> list[ActionConfig]:
        """The actions that run for an occurrence."""
        return [
            action
            for action, reasons in zip(self.actions, self.reasons, strict=True)
            if reasons is None or reasons & occurrence.reasons
        ]


@dataclass(slots=True)
class AdminPath:
    """The properties of one path of `amps-action-on-admin`, combined from all its actions."""

    required: list[str] = field(default_factory=list)
    name: str = ""
    description: str = ""


def published_key(event: ActionModule) -> str:
    """The key of an event of published messages: message type and topic, then what chooses among its messages."""
    options = event.options
    parts = [options["MessageType"][0], options["Topic"][0]]
    parts += [f"{name}: {options[name][0]}" for name in ("MessageSource", "Filter") if name in options]
    return " ".join(parts)


def event_key(event: ActionModule) -> tuple[str, str]:
    """The key of an event, equal for each `On` of the same event: the kind, and the event of that kind."""
    kind = event.module.removeprefix("amps-action-on-")
    if event.module in QUEUE_EVENTS:
        return kind, f"{event.options['MessageType'][0]} {event.options['Topic'][0]}"
    if event.module == PUBLISH_EVENT:
        return kind, published_key(event)
    which = {"schedule": "Every", "signal": "Signal", "admin": "Path", "execute-event": "Event"}.get(kind)
    text = event.options[which][0] if which is not None else ""
    if kind == "signal":
        text = read_signal(text)
    elif kind == "schedule":
        text = repr(read_schedule(text))
    return kind, text


class Engine:
    """All actions of an instance. `now_s`: the wall clock."""

    def __init__(
        self,
        actions: Sequence[ActionConfig],
        make_environment: "Callable[[Engine], Environment]",
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._environment = environment = make_environment(self)
        self._log = environment.log
        self._now_s = now_s
        self._steps: dict[str, Step] = {}
        self.sources: dict[tuple[str, str], Source] = {}
        self.admin_paths: dict[str, AdminPath] = {}
        for action in actions:
            for event in action.events:
                self._add(action, event)
            for step in action.steps:
                if step.module not in self._steps:
                    self._steps[step.module] = STEP_CLASSES[step.module](environment)

    def _add(self, action: ActionConfig, event: ActionModule) -> None:
        key = kind, which = event_key(event)
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = Source(f"{kind} {which}".strip())
            source.is_of_messages = event.module == PUBLISH_EVENT
        if kind == "schedule":
            source.waiting_max = 1
            source.schedule = read_schedule(event.options["Every"][0])
            source.name = (
                f"schedule {event.options.get('Name', ('unknown',))[0]} ({event.options['Every'][0]})"
            )
        elif kind == "admin":
            path = self.admin_paths.setdefault(which, AdminPath())
            path.required += event.options.get("RequiredParameter", ())
            path.name = path.name or event.options.get("Name", ("",))[0]
            path.description = path.description or event.options.get("Description", ("",))[0]
        reasons = event.options.get("Reason")
        source.add(action, None if reasons is None else read_reasons(reasons[0]))

    # --- events ---------------------------------------------------------------------------------------------

    def happened(
        self, kind: str, which: str = "", variables: Mapping[str, str] | None = None, depth: int = 0
    ) -> "asyncio.Future[str | None] | None":
        """Add an occurrence of an event, whose actions run as soon as possible. None: the event has no actions, or its
        one run is due already.

        The result of the future is None when all actions succeeded, else the reason of the first failure. Raises Busy.
        """
        source = self.sources.get((kind, which))
        if source is None:
            return None
        if len(source.waiting) >= source.waiting_max:
            if source.waiting_max == 1:
                return None
            raise Busy
        done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        source.waiting.append(Occurrence(variables or {}, depth, done))
        if source.worker is None:
            source.worker = asyncio.create_task(self._work(source))
        return done

    def raise_event(self, event: str, run: Run) -> None:
        """Add an occurrence of an event that a step raised. Raises StepFailure."""
        if run.depth >= EVENT_DEPTH_MAX:
            raise StepFailure(
                f"{EVENT_DEPTH_MAX} events raised one another; make sure that no event raises itself"
            )
        try:
            self.happened("execute-event", event, run.variables, run.depth + 1)
        except Busy:
            raise StepFailure(
                f"{WAITING_MAX} occurrences of the event {event[:100]!r} wait already"
            ) from None

    async def idle(self) -> None:
        """Wait until no action runs or waits."""
        while workers := [source.worker for source in self.sources.values() if source.worker is not None]:
            await asyncio.wait(workers)

    # --- runs -----------------------------------------------------------------------------------------------

    async def _work(self, source: Source) -> None:
        try:
            while source.waiting:
                occurrence = source.waiting.popleft()
                reason = await self.run_actions(source, occurrence)
                if occurrence.done is not None and not occurrence.done.done():
                    occurrence.done.set_result(reason)
        finally:
            source.worker = None

    async def run_actions(self, source: Source, occurrence: Occurrence) -> str | None:
        """Run the actions of an event once. Return the reason of the first failure, or None. Raises Interrupted."""
        reason: str | None = None
        for action in source.wanted(occurrence):
            failure = await self._run(source, action, occurrence)
            reason = reason or failure
        return reason

    async def _run(self, source: Source, action: ActionConfig, occurrence: Occurrence) -> str | None:
        """Run one action once. Return the reason of its failure, or None."""
        own = always_present(self._environment.config.name, self._now_s())
        run = Run({**occurrence.variables, **own}, action.place, occurrence.depth, occurrence.publisher)
        # Events of messages may be many, and the messages tell of them.
        if occurrence.publisher is None and not source.is_of_messages:
            self._log.log("29-0003", place=action.place, event=source.name)
        for step in action.steps:
            run.place = step.place
            reason = await self._step(step, run)
            if reason == "":
                return None
            if reason is not None:
                self._log.log("29-0002", place=step.place, module=step.module, reason=reason)
                return f"{step.module}: {reason}"
        return None

    async def _step(self, step: ActionModule, run: Run) -> str | None:
        """Run one step. None: continue. Empty: end the run. Otherwise: the reason of a failure."""
        description = STEPS.get(step.module) or CONDITIONS[step.module]
        try:
            texts = {
                name: tuple(substitute(text, run.variables) for text in values)
                for name, values in step.options.items()
            }
            options = read_options(description, texts)
            return None if await self._steps[step.module].run(options, run) else ""
        except NotSupportedYet as feature:
            return f"not supported yet: {feature}"
        except (StepFailure, ValueError) as problem:
            return str(problem)
        except Interrupted:
            raise
        except Exception as problem:
            self._log.log("01-0005", place=f"the action at {run.place}", data=traceback.format_exc())
            return f"unexpected failure: {problem!r}"
