"""Running in the background: two forks, and a parent that waits until the server is ready or has failed.

The pipe between them carries one message: the supervisor's text at readiness, or, when the start
failed, a line that begins with `failed` and contains the exit code and the reason.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator

_FAILED = b"failed "
_LARGEST_MESSAGE_BYTES = 64 * 1024


def run_as_daemon(run: Callable[[int], int]) -> int:
    """Run `run(ready_fd)` in a daemon. Return 0 once it is ready, else its exit code.

    The working directory stays, because relative paths of a configuration refer to it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        _become_daemon(run, write_end)
    os.close(write_end)
    pid_text = _read_line(read_end)
    os.waitpid(child, 0)
    try:
        with _interruptible():
            outcome = os.read(read_end, _LARGEST_MESSAGE_BYTES)
    except _Interrupted as interruption:
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(pid_text), signal.SIGTERM)
        print(f"Interrupted: the server with pid {pid_text} gets a signal to stop.", file=sys.stderr)
        return 128 + interruption.number
    os.close(read_end)
    if outcome.startswith(_FAILED):
        code_text, _, reason = outcome.removeprefix(_FAILED).decode("utf-8", "replace").partition(" ")
        print("\n".join([*reason.splitlines(), "The server did not start."]), file=sys.stderr)
        return int(code_text)
    if not outcome:
        print("Error: the server ended before it was ready; see its log", file=sys.stderr)
        return 1
    print(f"The server runs in the background, pid {pid_text}")
    return 0


class _Interrupted(BaseException):
    """The waiting command was interrupted by a signal."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Raise _Interrupted for signals that end a command, because the daemon's own session does not get them."""

    def interrupt(number: int, frame: object) -> None:
        raise _Interrupted(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _read_line(descriptor: int) -> str:
    """Read the pid, which the daemon reports first."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def _become_daemon(run: Callable[[int], int], write_end: int) -> None:
    """Fork again, and run the daemon. Never returns."""
    if os.fork() != 0:
        os._exit(0)
    code = 1
    said = io.StringIO()
    own_end = os.dup(write_end)  # the supervisor may close `write_end`
    try:
        os.write(write_end, b"%d\n" % os.getpid())
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.close(nothing)
        sys.stderr = said  # the parent prints the supervisor's text about a failed start
        code = run(write_end)
    except Exception as error:
        said.write(f"Error: {type(error).__name__}: {error}\n")
    finally:
        with contextlib.suppress(OSError):  # after readiness the parent has ended, and the pipe has no reader
            os.write(own_end, _FAILED + f"{code} {said.getvalue()}".encode("utf-8", "replace"))
        os._exit(code)
