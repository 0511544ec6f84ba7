"""The keyboard and the size of a terminal: single keys without echo, and wake-ups for changes of the size."""

import contextlib
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from types import FrameType

_SEQUENCES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down",
    b"\x1bOA": "up", b"\x1bOB": "down",
}  # fmt: skip
READ_BYTES = 1024
HUNG_UP = "hung up"
"""The key that stands for the end of the terminal."""


class Terminated(BaseException):
    """A signal told the program to end. The terminal is restored on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Keyboard:
    """Waits for keys, for a changed size, and for `wake` of another thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._closed = False
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the current wait, or the next one. Any thread and signal handlers may call it."""
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # the pipe is full: the wait ends anyway
                    os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """The keys that were pressed; none if the time has passed or `wake` was called."""
        ready, _, _ = select.select([self._descriptor, self._reader], [], [], seconds)
        if self._reader in ready:
            os.read(self._reader, READ_BYTES)
        if self._descriptor not in ready:
            return []
        try:
            typed = os.read(self._descriptor, READ_BYTES)
        except OSError:  # the terminal is gone
            typed = b""
        return split_keys(typed) if typed else [HUNG_UP]

    def close(self) -> None:
        """Release the pipe."""
        with self._lock:
            self._closed = True
            os.close(self._reader)
            os.close(self._writer)


def split_keys(typed: bytes) -> list[str]:
    """The keys in typed bytes, by character or name. Unknown sequences are left out."""
    keys = []
    at = 0
    while at < len(typed):
        for sequence, name in _SEQUENCES.items():
            if typed.startswith(sequence, at):
                keys.append(name)
                at += len(sequence)
                break
        else:
            if typed[at] == 0x1B:
                break  # an unknown sequence: the rest belongs to it
            keys.append(chr(typed[at]))
            at += 1
    return keys


@contextlib.contextmanager
def keyboard(descriptor: int) -> Iterator[Keyboard]:
    """Yield the keyboard of a terminal, with keys unbuffered and without echo; restore the terminal at the end.

    SIGTERM and SIGHUP raise Terminated in the main thread, so that the terminal is restored. SIGTSTP is ignored.
    """
    before = termios.tcgetattr(descriptor)
    keys = Keyboard(descriptor)

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    handlers = {
        signal.SIGWINCH: lambda number, frame: keys.wake(),
        signal.SIGTERM: end,
        signal.SIGHUP: end,
        signal.SIGTSTP: signal.SIG_IGN,
    }
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}  # type: ignore[arg-type]
    try:
        tty.setcbreak(descriptor)
        yield keys
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        keys.close()
