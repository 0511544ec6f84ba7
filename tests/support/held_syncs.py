"""A slow disk: while a file exists, no `fdatasync` of the server begins.

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
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int descriptor)
{
    static int (*real)(int);
    const char *hold = getenv("HOLD_SYNCS_WHILE");
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    while (hold && access(hold, F_OK) == 0)
        usleep(2000);
    return real(descriptor);
}
"""


class HeldSyncs:
    """Holds the syncs of the servers started with `environment`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._switch = directory / "hold"
        source, library = directory / "held_syncs.c", directory / "held_syncs.so"
        source.write_text(SOURCE)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "HOLD_SYNCS_WHILE": str(self._switch),
        }

    @contextmanager
    def held(self) -> Iterator[None]:
        """No sync begins inside; one that is under way may still end."""
        self._switch.touch()
        try:
            yield
        finally:
            self._switch.unlink()
