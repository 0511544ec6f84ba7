"""Running actions: sources of events, their workers, and the runs (operations.md §9.1, §9.7).

A source is one event: the startup, one signal, one path, one schedule. It has the actions of that event, in the order
of the file, and at most one worker, which takes what is due and runs them to their end. Sources are independent of each
other. What comes while a worker is busy waits; a schedule that is due several times meanwhile runs once.

Events of queues come from the log, and whoever reads it there (queue_follower.py) has their actions run and waits for
them (`run_actions`); nothing of them waits here, and none is passed over.

A run goes through the steps of an action. A condition that does not hold ends it, a step that fails ends it with a
record in the log. Neither keeps the next action of the event from running.
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
    """Too much waits for this event already."""


@dataclass(slots=True)
class Occurrence:
    """One time that an event happened: the variables that it brings, and who waits for the end. Of an expiry: why; and
    what its actions publish with.
    """

    variables: Mapping[str, str]
    depth: int = 0
    done: "asyncio.Future[str | None] | None" = None
    reasons: frozenset[str] = frozenset()
    publisher: Publishes | None = None


@dataclass(slots=True)
class Source:
    """One event. `name`: for the log. `reasons`: for each action why a message must have expired for it to run; None:
    whatever the reason is.
    """

    name: str
    schedule: Schedule | None = None
    waiting_max: int = WAITING_MAX
    actions: list[ActionConfig] = field(default_factory=list)
    reasons: list[frozenset[str] | None] = field(default_factory=list)
    waiting: deque[Occurrence] = field(default_factory=deque)
    worker: asyncio.Task[None] | None = None

    def add(self, action: ActionConfig, reasons: frozenset[str] | None) -> None:
        """Another action; or another `On` of the last one, which runs once if any of them says so."""
        if not self.actions or self.actions[-1] is not action:
            self.actions.append(action)
            self.reasons.append(reasons)
        else:
            before = self.reasons[-1]
            self.reasons[-1] = None if before is None or reasons is None else before | reasons

    def wanted(self, occurrence: Occurrence) -> list[ActionConfig]:
        """The actions that run."""
        return [
            action
            for action, reasons in zip(self.actions, self.reasons, strict=True)
            if reasons is None or reasons & occurrence.reasons
        ]


@dataclass(slots=True)
class AdminPath:
    """What `amps-action-on-admin` has at one path: all that its actions say."""

    required: list[str] = field(default_factory=list)
    name: str = ""
    description: str = ""


def event_key(event: ActionModule) -> tuple[str, str]:
    """What makes two `On` the same event: kind and which one."""
    kind = event.module.removeprefix("amps-action-on-")
    if event.module in QUEUE_EVENTS:
        return kind, f"{event.options['MessageType'][0]} {event.options['Topic'][0]}"
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
        """An event: its actions run as soon as they can. None: it has no actions, or its one run is due already.

        The future has None when all went well, else why the first that failed did. Raises Busy.
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
        """A step raised an event. Raises StepFailure."""
        if run.depth >= EVENT_DEPTH_MAX:
            raise StepFailure(f"{EVENT_DEPTH_MAX} events led to one another; see that no event raises itself")
        try:
            self.happened("execute-event", event, run.variables, run.depth + 1)
        except Busy:
            raise StepFailure(f"the event {event[:100]!r} waits {WAITING_MAX} times already") from None

    async def idle(self) -> None:
        """Wait until nothing runs or waits."""
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
        """The actions of an event, once; why the first that failed did. Raises Interrupted."""
        reason: str | None = None
        for action in source.wanted(occurrence):
            failure = await self._run(source, action, occurrence)
            reason = reason or failure
        return reason

    async def _run(self, source: Source, action: ActionConfig, occurrence: Occurrence) -> str | None:
        """One action, once. Returns why it failed, None if it did not."""
        own = always_present(self._environment.config.name, self._now_s())
        run = Run({**occurrence.variables, **own}, action.place, occurrence.depth, occurrence.publisher)
        if occurrence.publisher is None:  # a queue's messages may be many, and are in the log themselves
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
        """None: go on. Empty: end here. Else: why it failed."""
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
