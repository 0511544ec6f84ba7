"""Standard output and standard error of the command, which may be missing, full, or without a reader.

None of these keeps a server from starting or running: the texts printed there are also in the log, if there is one.
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
    """Print a line on standard output; a failure is ignored."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        # The unwritten rest in the buffer would make every later attempt fail too.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def complain(text: str) -> None:
    """Print a line on standard error; a failure is ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def flush() -> None:
    """Write the contents of the streams' buffers; a failure is ignored."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
