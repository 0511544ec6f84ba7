"""A slow disk: while a file exists, no `fdatasync` of the server begins, or each one takes longer.

It separates written from durable data for as long as a test needs, which no real disk does. The server is started
with a small library in front of libc's `fdatasync`; it is compiled at the first use (a C compiler is there, the
package needs one too).
"""

import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int descriptor)
{
    static int (*real)(int);
    const char *hold = getenv("HOLD_SYNCS_WHILE");
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *slow = getenv("SLOW_SYNCS_WHILE");
    unsigned delay_us = 0;
    FILE *file = slow ? fopen(slow, "r") : NULL;
    if (file) {
        if (fscanf(file, "%u", &delay_us) == 1)
            usleep(delay_us);
        fclose(file);
    }
    while (hold && access(hold, F_OK) == 0)
        usleep(2000);
    return real(descriptor);
}
"""


class HeldSyncs:
    """Holds the syncs of the servers started with `environment`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._switch, self._delay = directory / "hold", directory / "slow"
        source, library = directory / "held_syncs.c", directory / "held_syncs.so"
        source.write_text(SOURCE)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "HOLD_SYNCS_WHILE": str(self._switch),
            "SLOW_SYNCS_WHILE": str(self._delay),
        }

    @contextmanager
    def held(self) -> Iterator[None]:
        """No sync begins inside; one that is under way may still end."""
        self._switch.touch()
        try:
            yield
        finally:
            self._switch.unlink()

    @contextmanager
    def slowed(self, delay_s: float) -> Iterator[None]:
        """Each sync takes so much longer inside; at most a second."""
        part = self._delay.with_suffix(".part")
        part.write_text(str(int(delay_s * 1e6)))
        part.rename(self._delay)
        try:
            yield
        finally:
            self._delay.unlink()
