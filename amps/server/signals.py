"""The signals of the supervisor: which of them stop the instance, have actions, or do nothing.

By default SIGTERM, SIGINT and SIGHUP stop it. SIGUSR1 switches authentication and entitlement off, SIGUSR2 on again. An
action that is configured for a signal replaces this default (operations.md §9.4). Handlers only note the signal and
wake the loop, which reacts to it.
"""

import contextlib
import os
import signal
from collections.abc import Callable

from amps.config import ServerConfig
from amps.config.action_modules import read_signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SWITCH_SIGNALS = {"SIGUSR1": False, "SIGUSR2": True}
"""Whether authentication and entitlement are enabled after the signal."""
# SIGQUIT will write a minidump and leave the server running: it must not kill.
_IGNORED = (signal.SIGPIPE, signal.SIGQUIT)


def signals_with_actions(config: ServerConfig) -> frozenset[str]:
    """The names of the signals that have actions."""
    return frozenset(
        read_signal(event.options["Signal"][0])
        for action in config.actions
        for event in action.events
        if event.module == "amps-action-on-signal"
    )


class Signals:
    """The signals that the supervisor catches. `wake_fd` becomes readable with every signal, SIGCHLD included."""

    def __init__(self, config: ServerConfig) -> None:
        self.with_actions = signals_with_actions(config)
        self._caught = [signal.Signals[name] for name in {*self.with_actions, *SWITCH_SIGNALS}]
        self._noted: list[str] = []
        self.wake_fd, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def catch(self, stop: Callable[[str], None], is_ready: Callable[[], bool]) -> None:
        """Begin to catch signals. `stop` receives the name of the signal that ends the instance."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

        def end(number: int, frame: object) -> None:
            stop(signal.Signals(number).name)

        def note(number: int, frame: object) -> None:
            name = signal.Signals(number).name
            if number in STOP_SIGNALS and not is_ready():
                stop(name)  # a start that hangs can be ended
            elif name not in self._noted:
                self._noted.append(name)

        for number in STOP_SIGNALS:
            signal.signal(number, end)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        for number in self._caught:
            signal.signal(number, note)

    def clear(self) -> None:
        """Clear all wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)

    def take(self) -> list[str]:
        """The signals since the last call that do not stop the instance."""
        taken, self._noted = self._noted, []
        return taken

    def release_in_child(self) -> None:
        """Ignore signals in a forked process: the supervisor handles signals to the whole group."""
        signal.set_wakeup_fd(-1)
        for number in (*STOP_SIGNALS, *self._caught):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.wake_fd)
        os.close(self._wake_write)

    def ignore_stops(self) -> None:
        """Ignore signals at the end of the process. The interpreter restores default handlers when it ends, but ignored
        signals stay ignored. So a late signal does not turn an orderly stop into a failure.
        """
        for number in (*STOP_SIGNALS, *self._caught):
            signal.signal(number, signal.SIG_IGN)
