"""Failures in one line on standard error, and output that cannot be written.

The text of an error may come from a server, which may be anybody's: it is made printable, so that it cannot control
the terminal.
"""

import errno
import os
import sys

import click

from amps.cli.bodies import printable

_OUTPUT_IS_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def tell(text: str, context: str = "error: ") -> None:
    """Print a text that may come from others on standard error."""
    click.echo(context + printable(text), err=True)


def write_whole(data: bytes) -> None:
    """Write bytes to standard output.

    Without a buffer (PYTHONUNBUFFERED), a signal cuts a write short that waits for a slow reader.
    """
    left = memoryview(data)
    while left:
        written = sys.stdout.buffer.write(left)
        if written is None:
            raise BlockingIOError(errno.EAGAIN, "standard output does not wait for its reader")
        left = left[written:]


def describe(error: BaseException) -> str:
    """Return a failure in one line, with the type of the error if the text alone is not clear."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror}"
    text = str(error) or error.__class__.__name__
    return text if " " in text else f"{error.__class__.__name__}: {text}"


def tell_system_error(error: OSError) -> None:
    """Print an error of the system in one line, after the output."""
    text = describe(error)
    lost = (error.filename is None and error.errno in _OUTPUT_IS_FULL) | (not flush_output())
    tell(f"the output cannot be written: {text}" if lost else text)


def flush_output() -> bool:
    """Write the rest of standard output; if that fails, drop it, because the exit would fail to write it again."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
        return False
    return True


def drop_output() -> None:
    """Write nothing to standard output from now on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
