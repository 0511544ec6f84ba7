"""The output of a report. It is checked before any journal is read, and written completely or not at all.

A file is replaced only by a complete new one. An output that is not a plain file (a pipe, a device, a symbolic link) is
written in place: it must not be replaced.
"""

import contextlib
import errno
import os
from pathlib import Path

from amps.journal.names import unfinished_path
from amps.spark.pipelines.job import PipelineError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_output(path: Path) -> None:
    """Check that a file or directory can be written at this path. Raises PipelineError."""
    directory = path.absolute().parent
    try:
        if not directory.is_dir():
            problem = f"there is no directory {directory}: make it, or choose another place"
        elif path.exists() and not os.access(path, os.W_OK):
            problem = "it is there and write-protected: choose another place"
        elif _is_replaced(path) and not os.access(directory, os.W_OK | os.X_OK):
            problem = f"you may not write to the directory {directory}: choose another place"
        else:
            return
    except OSError as error:
        raise output_failed(path, error) from error
    raise PipelineError(f"the output {path} cannot be written: {problem}")


def write_output(path: Path, text: str) -> None:
    """Write a file. Raises PipelineError."""
    replaced = _is_replaced(path)
    target = unfinished_path(path) if replaced else path
    try:
        with target.open("w", newline="", encoding="utf-8", errors="replace") as file:
            file.write(text)
        if replaced:
            target.replace(path)
    except OSError as error:
        if replaced:
            with contextlib.suppress(OSError):
                target.unlink()
        raise output_failed(path, error) from error


def output_failed(path: Path, error: OSError) -> PipelineError:
    """Return the exception for an output that could not be written."""
    advice = "make room there, or choose another place" if error.errno in _FULL else "choose another place"
    return PipelineError(f"the output {path} cannot be written ({error.strerror or error}): {advice}")


def _is_replaced(path: Path) -> bool:
    return not path.is_symlink() and (path.is_file() or path.is_dir() or not path.exists())
