"""The lock of a journal directory: one core writes there; a second one fails with a message that names the first.

The lock is the kernel's (flock), so it ends with the process that holds it, however that dies; the file stays. The
holder writes one line about itself into the file, for the message of a second server. The line is valid only while the
lock is held.

The core also locks the journal that it writes to (`hold_journal`). So a second core is stopped even if the lock file is
removed under the first: it would get a lock of its own, on another file of the same name.

A predecessor that is just dying holds the lock for a moment longer: a killed process frees its memory first, a core
without supervisor drains, and a core that stops makes everything durable. The second core waits for such a holder. Any
other holder is reported after GRACE_S, which covers the time until its dying is visible.
"""

import contextlib
import fcntl
import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from amps.journal.disk import FILE_MODE
from amps.journal.names import find_journals
from amps.server.eventlog import Report

GRACE_S = 1.0
ENDING_WAIT_S = 30.0
_POLL_S = 0.05
_LINE = re.compile(r"pid=(\d+) supervisor=(\d+) state=(\w+) host=(.*)")
_SERVING, _ENDING = "serving", "ending"
_EXITING_FLAG = 0x4  # PF_EXITING
_KILL_PENDING = 1 << 8  # SIGKILL in a signal mask


class DirectoryInUse(Exception):
    """Another server writes to the journal directory; the text names it and says what to do."""

    def __init__(self, text: str, holder: "Holder") -> None:
        super().__init__(text)
        self.holder = holder


@dataclass(frozen=True, slots=True)
class Holder:
    """The process named in the lock file as the holder of the lock."""

    pid: int = 0
    supervisor: int = 0
    state: str = ""
    host: str = ""

    def __str__(self) -> str:
        if not self.pid:
            return "an unknown process"
        where = "" if self.host == socket.gethostname() else f" on host {self.host}"
        return f"process {self.pid}{where}, the core of the server with pid {self.supervisor}"

    def is_ending(self) -> bool:
        """Whether it will release the lock by itself."""
        if not self.pid or self.host != socket.gethostname():
            return self.state == _ENDING
        return self.state == _ENDING or _is_dying(self.pid, self.supervisor)


def _is_dying(pid: int, supervisor: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return True
    state, parent, flags = fields[0], int(fields[1]), int(fields[6])
    pending = [int(mask, 16) for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.MULTILINE)]
    killed = any(mask & _KILL_PENDING for mask in pending)
    return state in "ZX" or bool(flags & _EXITING_FLAG) or killed or parent != supervisor


class DirectoryLock:
    """The lock, held. `ending` lets a successor wait for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._write(_SERVING)

    def ending(self) -> None:
        """Note that the holder makes everything durable and ends."""
        self._write(_ENDING)

    def release(self) -> None:
        """Release the lock without ending the process, as the simulation does."""
        os.close(self._descriptor)

    def _write(self, state: str) -> None:
        line = f"pid={os.getpid()} supervisor={os.getppid()} state={state} host={socket.gethostname()}\n"
        # The lock is valid even if the disk is full; only the holder's line is missing then.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, line.encode(), 0)
            os.ftruncate(self._descriptor, len(line.encode()))


def lock_directory(directory: Path, instance_name: str, report: Report) -> DirectoryLock:
    """Lock the directory against other cores. `report(id, **values)` logs. Raises DirectoryInUse, OSError."""
    path = directory / f"{instance_name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    began_s = time.monotonic()
    waiting_for: int | None = None
    while True:
        held = path
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = _held_journal(directory, instance_name)
            if journal is None:
                return DirectoryLock(descriptor)
            # The lock file does not belong to the holder of the journal.
            held, holder = journal, Holder()
        except BlockingIOError:
            holder = _read_holder(descriptor)
        ending = holder.is_ending()
        if ending and waiting_for != holder.pid:
            waiting_for = holder.pid
            report("1D-0011", path=path, holder=holder, seconds=int(ENDING_WAIT_S))
        if time.monotonic() - began_s > (ENDING_WAIT_S if ending else GRACE_S):
            os.close(descriptor)
            raise DirectoryInUse(
                f"another server uses {directory}: {held} is held by {holder}; "
                + (
                    f"stop that server first (kill {holder.supervisor}), or "
                    if holder.pid
                    else "stop it first, or "
                )
                + "give this one a JournalDirectory or a Name of its own",
                holder,
            )
        time.sleep(_POLL_S)


def hold_journal(descriptor: int) -> None:
    """Lock the journal in use: while it is open, no other core begins on its directory."""
    # Without such locks in the file system, the lock file is the only protection.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _held_journal(directory: Path, instance_name: str) -> Path | None:
    """A journal that another core writes to; None if there is none."""
    for places in find_journals(directory, None, instance_name).values():
        for place in places:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return place.path
                except OSError:
                    return None  # the file system has no such locks
                finally:
                    os.close(descriptor)
    return None


def _read_holder(descriptor: int) -> Holder:
    match = _LINE.match(os.pread(descriptor, 4096, 0).decode("utf-8", "replace"))
    return Holder(int(match[1]), int(match[2]), match[3], match[4]) if match else Holder()
