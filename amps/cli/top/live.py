"""The loop of the live view: a thread reads values at intervals, the main thread draws them and handles keys."""

import errno
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.live import Live

from amps.cli.top.interface import AdminFailure, AdminInterface
from amps.cli.top.state import VIEWS, Reading, read_values
from amps.cli.top.terminal import HUNG_UP, Keyboard, Terminated, keyboard
from amps.cli.top.view import LINES_AROUND_ROWS, Choice, screen

REDRAW_S = 1.0
"""The longest time between two drawings: the age of the values is shown."""


class Poller:
    """Reads values at intervals, on a thread of its own: a server that does not answer delays no key."""

    def __init__(
        self, interface: AdminInterface, interval_s: float, first: Reading, notify: Callable[[], None]
    ) -> None:
        self.reading = first
        self.problem: str | None = None
        """Why the last try failed; None after a success."""
        self.paused = False
        self.late_s = 2 * interval_s + REDRAW_S
        """The age in seconds from which values are late: the server has not answered since."""
        self._interface = interface
        self._interval_s = interval_s
        self._notify = notify
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="amps-top", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def end(self) -> None:
        """End soon. A read that waits for the server ends with the process."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            if self.paused:
                continue
            try:
                values = self._interface.read()
                if self.paused:  # meanwhile
                    continue
                self.reading = read_values(values, time.monotonic(), self.reading)
                self.problem = None
            except AdminFailure as failure:
                self.problem = failure.message
            except Exception as error:  # the thread must not end silently
                self.problem = f"the answer of {self._interface.url} cannot be read: {error!r}"
            if not self._ended.is_set():
                self._notify()


def run(interface: AdminInterface, interval_s: float, first: Reading, choice: Choice) -> None:
    """Show the values until the user quits. Ctrl-C quits, too. Raises Terminated."""
    with keyboard(sys.stdin.fileno()) as keys:
        poller = Poller(interface, interval_s, first, keys.wake)
        poller.start()
        try:
            with Live(console=Console(), screen=True, auto_refresh=False, redirect_stderr=False) as live:
                _loop(poller, choice, keys, live)
        except KeyboardInterrupt:
            pass
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise Terminated(signal.SIGHUP) from None  # the terminal is gone: nothing can be restored
        finally:
            poller.end()


def _loop(poller: Poller, choice: Choice, keys: Keyboard, live: Live) -> None:
    while True:
        poller.paused = choice.paused
        reading, problem = poller.reading, poller.problem
        age_s = time.monotonic() - reading.at_s
        when = f"{datetime.now():%H:%M:%S}"
        if problem is not None or choice.paused or age_s > poller.late_s:
            when += f", values {age_s:.0f} s old"
        height = live.console.size.height
        if problem is not None:
            problem = f"values {age_s:.0f} s old: {problem}"
        live.update(screen(reading, choice, problem, when, height), refresh=True)
        for key in keys.wait(REDRAW_S):
            if not handle(key, choice, max(1, height - LINES_AROUND_ROWS)):
                return


def handle(key: str, choice: Choice, page: int) -> bool:
    """Carry out a key; False: quit. `page`: the number of rows on the screen."""
    names = list(VIEWS)
    if key in ("q", "Q", HUNG_UP):
        return False
    if key in ("p", " "):
        choice.paused = not choice.paused
    elif key == "\t":
        choice.next_view()
    elif key in "12345"[: len(names)]:
        choice.show(names[int(key) - 1])
    elif key in ("s", "S"):
        choice.next_sort(1 if key == "s" else -1)
    elif key == "r":
        choice.reverse[choice.view] = not choice.reverse[choice.view]
    elif key in ("j", "down", "k", "up", "page down", "page up"):
        step = page if key.startswith("page") else 1
        choice.offset += step if key in ("j", "down", "page down") else -step
        choice.offset = max(0, choice.offset)
    return True
