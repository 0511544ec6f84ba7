"""Run `amps` as a child that ends with its parent: `python -m amps.cli.demo.child PARENT ARGUMENT…`.

The kernel sends this process SIGTERM when its parent ends in any way, SIGKILL included; a server then
drains and stops. The child itself requests the signal, not code between fork and exec: the parent has threads, so
only system calls are safe there.
"""

import ctypes
import os
import signal
import sys

from amps.cli.main import amps

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Request SIGTERM for the end of process `parent`. Raises SystemExit if it has already ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:
        raise SystemExit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    amps.main(sys.argv[2:], prog_name="amps")
