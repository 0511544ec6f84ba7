"""Standard output and standard error of the command, which may be missing, full, or have nobody who reads.

None of that keeps a server from starting or from running: what is said there is also in the log, if there is one.
"""

import contextlib
import io
import os
import sys


def prepare() -> None:
    """Make sure that the three standard streams exist, so that no socket or journal gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """A line for standard output; it is no matter if it cannot be written."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        # What waits in its buffer would make every later attempt fail too.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def complain(text: str) -> None:
    """A line for standard error; it is no matter if it cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def flush() -> None:
    """Write what waits in the streams' buffers, if that can be done."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
