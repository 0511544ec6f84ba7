"""The common parts of jobs: their exception, and the interface for progress."""

import re
from typing import Protocol

_EXCEPTION_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*: (.+)")


class PipelineError(Exception):
    """A job cannot be done. The text is one sentence with the problem and the remedy."""


class Progress(Protocol):
    """Receives the progress of a job."""

    def stage(self, title: str, steps: int | None = None) -> None:
        """Begin a stage and end the one before. `steps`: the number of steps, if it is known."""

    def advance(self, steps: int = 1) -> None:
        """Note that `steps` more steps of the stage are done."""

    def say(self, text: str) -> None:
        """Show a line permanently."""


class Silent:
    """A `Progress` that shows nothing."""

    def stage(self, title: str, steps: int | None = None) -> None:
        """Nothing."""

    def advance(self, steps: int = 1) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


def told_by_spark(error: BaseException) -> str:
    """Return a one-line message from the long text of an exception in a Spark task or in the JVM.

    For an exception that was raised in Python, by a task or by a data source, it is the last line of its traceback.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    tracebacks = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if tracebacks:
        # The first traceback may be followed by others of the same failure and by the stack of the JVM.
        for line in lines[tracebacks[0] + 1 :]:
            if (found := _EXCEPTION_LINE.fullmatch(line)) is not None:
                return found[1]
    return next((line for line in lines if line), type(error).__name__)
