"""What jobs have in common: how they fail, and how they say how far they are."""

import re
from typing import Protocol

_EXCEPTION_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*: (.+)")


class PipelineError(Exception):
    """A job cannot be done. The text is one sentence: what is wrong, and what to do."""


class Progress(Protocol):
    """Is told how far a job is."""

    def stage(self, title: str, steps: int | None = None) -> None:
        """Something new begins; the stage before is over. `steps`: how many there will be, if that is known."""

    def advance(self, steps: int = 1) -> None:
        """So many steps more of the stage are done."""

    def say(self, text: str) -> None:
        """A line that stays."""


class Silent:
    """A `Progress` that shows nothing."""

    def stage(self, title: str, steps: int | None = None) -> None:
        """Nothing."""

    def advance(self, steps: int = 1) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


def told_by_spark(error: BaseException) -> str:
    """What is wrong, in one line, out of the pages that Spark makes of an exception in a task or in the JVM.

    An exception that was raised in Python, by a task or by a data source, is told by the last line of its traceback.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    tracebacks = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if tracebacks:
        # What follows the first traceback may be others of the same failure, and the stack of the JVM.
        for line in lines[tracebacks[0] + 1 :]:
            if (found := _EXCEPTION_LINE.fullmatch(line)) is not None:
                return found[1]
    return next((line for line in lines if line), type(error).__name__)
