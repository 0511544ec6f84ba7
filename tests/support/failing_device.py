"""A device that fails: system calls for it return an error while a test requires that.

The server is started with a small library in front of libc's calls; it is compiled at the first use.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FAILING_CALLS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(const char *what)
{
    const char *directory = getenv("FAILING_CALLS");
    char path[4096];
    size_t at = 0;
    if (!directory)
        return 0;
    for (; *directory && at < 4000; ++directory) path[at++] = *directory;
    for (path[at++] = '/'; *what && at < 4090; ++what) path[at++] = *what;
    path[at] = 0;
    return access(path, F_OK) == 0;
}

int fdatasync(int descriptor)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (fails("fdatasync")) {
        errno = EIO;
        return -1;
    }
    return real(descriptor);
}

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

ssize_t pwrite64(int descriptor, const void *data, size_t length, off_t offset)
{
    if (!real_pwrite)
        real_pwrite = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    if (fails("pwrite")) {
        errno = EIO;
        return -1;
    }
    return real_pwrite(descriptor, data, length, offset);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset)
{
    return pwrite64(descriptor, data, length, offset);
}
"""


class FailingDevice:
    """System calls that fail while a file with their name exists."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        library = directory / "failing_calls.so"
        source = directory / "failing_calls.c"
        source.write_text(FAILING_CALLS)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
        )
        self.environment = {"LD_PRELOAD": str(library), "FAILING_CALLS": str(directory)}

    @contextlib.contextmanager
    def failing(self, call: str) -> Iterator[None]:
        (self.directory / call).touch()
        try:
            yield
        finally:
            (self.directory / call).unlink()
