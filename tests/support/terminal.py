"""A program in a terminal: a pseudo-terminal with a size, keys to press, and the screen that a user would see.

The screen is interpreted as far as `amps top` needs it: it draws each screen from the upper left corner.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

_CONTROL = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]")
WAIT_S = 30.0


class Terminal:
    """A process whose standard streams are a pseudo-terminal."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, lines: int = 30, columns: int = 140
    ) -> None:
        self._master, slave = pty.openpty()
        self.output = b""
        self.resize(lines, columns, tell=False)
        self.initial = termios.tcgetattr(slave)
        kept = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            list(command), stdin=slave, stdout=slave, stderr=slave, env={**kept, "TERM": "xterm-256color"},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._slave = slave
        self._open: tuple[int, ...] = (self._master, slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as if its window were closed."""
        descriptors, self._open = self._open, ()
        for descriptor in descriptors:
            os.close(descriptor)

    @property
    def settings(self) -> object:
        """The settings of the terminal: modes and control characters."""
        return termios.tcgetattr(self._slave)

    def resize(self, lines: int, columns: int, *, tell: bool = True) -> None:
        """Change the size; the program gets SIGWINCH from the kernel."""
        self.lines, self.columns = lines, columns
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.output = b""

    def press(self, keys: str) -> None:
        """Type keys. Earlier output is forgotten."""
        self._read(0)
        self.output = b""
        os.write(self._master, keys.encode())

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            self.output += os.read(self._master, 65536)
        except OSError:
            return False
        return True

    def screen(self) -> str:
        """The visible text. Output before the last jump to the upper left corner is gone, as it is on a terminal."""
        begin = max(self.output.rfind(b"\x1b[H"), 0)
        return _CONTROL.sub(b"", self.output[begin:]).decode("utf-8", "replace").replace("\r", "")

    def wait_for(self, done: Callable[[str], bool], what: str) -> str:
        """The screen once it satisfies a condition."""
        deadline = time.monotonic() + WAIT_S
        while not done(screen := self.screen()):
            assert time.monotonic() < deadline, f"{what}; the screen:\n{screen}"
            if not self._read(0.2):
                assert self.process.poll() is None, f"{what}; the program has ended:\n{screen}"
        return screen

    def end(self, signal_number: int | None = None) -> int:
        """The exit status of the program, after a signal if one is given. Its output is read meanwhile."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "the program does not end"
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def interrupt(self) -> None:
        """Press Ctrl-C: the kernel sends SIGINT to the foreground."""
        os.write(self._master, b"\x03")
