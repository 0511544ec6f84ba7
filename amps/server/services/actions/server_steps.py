"""Steps for the server and its host: journals, the log, other events, shell commands, shutdown."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any, Self

from amps.server.services.actions.step import Run, Step, StepFailure
from amps.server.services.actions.variables import to_bytes
from amps.server.services.core_requests import CoreRefused

COMMAND_WARNING_S = 2.0
COMMAND_KILL_S = 30.0
_OUTPUT_BYTES_SHOWN = 2000


class _JournalStep(Step):
    """Has the core mark journals; the core does the work later."""

    verb: str

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        try:
            numbers = await self.environment.core.mark(self.verb, {"age_s": options["Age"]})
        except CoreRefused as refusal:
            raise StepFailure(str(refusal)) from None
        if numbers:
            shown = ", ".join(str(number) for number in numbers[:100])
            self.environment.log.log("29-0004", place=run.place, verb=self.verb, journals=shown)
        return True


class ArchiveJournal(_JournalStep):
    """Moves journals without recent writes to the archive directory."""

    module = "amps-action-do-archive-journal"
    verb = "archive"


class CompressJournal(_JournalStep):
    """Compresses journals where they are."""

    module = "amps-action-do-compress-journal"
    verb = "compress"


class RemoveJournal(_JournalStep):
    """Removes journals as soon as they are not needed."""

    module = "amps-action-do-remove-journal"
    verb = "remove"


class RotateLogs(Step):
    """Begins the next file of each rotating log target, and opens the files of the others again, by their names."""

    module = "amps-action-do-rotate-logs"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        self.environment.log.rotate()
        return True


class ExecuteEvent(Step):
    """Raises an event, whose actions run independently, with this run's variables."""

    module = "amps-action-do-execute-event"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        event = options["Event"]
        if event is None:
            event = run.variables.get(options["EventVariable"], "")
        self.environment.raise_event(event, run)
        return True


class ExecuteSystem(Step):
    """Runs a shell command, in the working directory, with the server's rights and environment.

    It must end within a second or two. After that a warning is logged, and after half a minute it is killed with all
    its processes. A command that ends with another status than 0 has failed.
    """

    module = "amps-action-do-execute-system"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        command = to_bytes(options["Command"])
        if b"\0" in command:
            raise StepFailure("a command cannot contain a NUL")
        with _Complaints() as complaints:
            try:
                process = await asyncio.create_subprocess_shell(
                    command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=complaints.theirs,
                    start_new_session=True,
                )
            except OSError as error:
                raise StepFailure(f"the command cannot be started: {error.strerror}") from None
            self.environment.commands.add(process.pid)
            try:
                status = await self._wait(process, run)
            finally:
                self.environment.commands.discard(process.pid)
            said = complaints.end()
        if status != 0:
            how = f"status {status}" if status > 0 else f"signal {-status}"
            raise StepFailure(f"the command ended with {how}" + (f"; its output: {said}" if said else ""))
        return True

    async def _wait(self, process: asyncio.subprocess.Process, run: Run) -> int:
        waiting = asyncio.ensure_future(process.wait())
        done, _ = await asyncio.wait([waiting], timeout=COMMAND_WARNING_S)
        if not done:
            self.environment.log.log("29-0005", place=run.place, seconds=int(COMMAND_WARNING_S))
            done, _ = await asyncio.wait([waiting], timeout=COMMAND_KILL_S - COMMAND_WARNING_S)
        if not done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await waiting
            raise StepFailure(f"the command had not ended after {COMMAND_KILL_S:.0f} seconds and was killed")
        return waiting.result()


class _Complaints:
    """A pipe for the standard error of a command, of which the last part is kept.

    This process reads it itself, without waiting for its end: processes left by the command may hold it open for ever.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self.theirs, True)
        self._loop = asyncio.get_running_loop()
        self._kept = b""

    def __enter__(self) -> Self:
        self._loop.add_reader(self._ours, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._ours)
        os.close(self._ours)
        os.close(self.theirs)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._kept = (self._kept + os.read(self._ours, 65536))[-_OUTPUT_BYTES_SHOWN:]

    def end(self) -> str:
        """The last part of the output so far."""
        self._read()
        return self._kept.decode("utf-8", "backslashreplace").strip()


class Shutdown(Step):
    """Stops the instance, as a signal would."""

    module = "amps-action-do-shutdown"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        self.environment.ask_for_shutdown(f"the action at {run.place}")
        return True


class _Switch(Step):
    """Switches authentication or entitlement on or off, for the whole instance."""

    what: str
    enabled: bool

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        self.environment.switch(self.what, self.enabled)
        return True


class DisableAuthentication(_Switch):
    """Accepts every logon from now on."""

    module = "amps-action-do-disable-authentication"
    what, enabled = "authentication", False


class EnableAuthentication(_Switch):
    """Checks logons from now on; connected clients stay."""

    module = "amps-action-do-enable-authentication"
    what, enabled = "authentication", True


class DisableEntitlement(_Switch):
    """Allows everything from now on."""

    module = "amps-action-do-disable-entitlement"
    what, enabled = "entitlement", False


class EnableEntitlement(_Switch):
    """Checks commands from now on; existing subscriptions stay."""

    module = "amps-action-do-enable-entitlement"
    what, enabled = "entitlement", True


class Nothing(Step):
    """Does nothing."""

    module = "amps-action-do-nothing"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        return True
