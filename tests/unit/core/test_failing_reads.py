"""Reading ahead on a failing device or an older kernel, simulated by replaced system calls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.core.test_reading_limits import FILE_BYTES, Log

FAILING_CALLS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

int madvise(void *address, size_t length, int advice)
{
    static int (*real)(void *, size_t, int);
    const char *failing = getenv("POPULATE_FAILS_WITH");
    if (!real)
        real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    if (advice == 22 && failing && length > 65536) { /* not the header of the file */
        errno = atoi(failing);
        return -1;
    }
    return real(address, length, advice);
}

static ssize_t failing_pread(const char *name, int descriptor, void *data, size_t length, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    const char *failing = getenv("READ_FAILS_AT");
    if (failing && offset + (off_t)length > atoll(failing)) {
        if (offset >= atoll(failing)) {
            errno = EIO;
            return -1;
        }
        length = (size_t)(atoll(failing) - offset);
    }
    return real(descriptor, data, length, offset);
}

ssize_t pread(int descriptor, void *data, size_t length, off_t offset)
{
    return failing_pread("pread", descriptor, data, length, offset);
}

ssize_t pread64(int descriptor, void *data, size_t length, off_t offset)
{
    return failing_pread("pread64", descriptor, data, length, offset);
}
"""

READING = """
import sys
from amps._core.journal.reader import LogFile, LogUnreadable
from amps._core.journal.search import read
file = LogFile(sys.argv[1])
try:
    read(file, 0, file.size)
    print("all of it")
except LogUnreadable as problem:
    print(problem.offset, problem.detail)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("calls")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = directory / "failing_calls.c", directory / "failing_calls.so"
    source.write_text(FAILING_CALLS)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def reading(library: Path, path: Path, **environment: int) -> str:
    """The output of a process that reads a whole journal."""
    settings = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-P", "-c", READING, str(path)],
        env={**os.environ, **settings, "LD_PRELOAD": str(library)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


EFAULT, EINVAL, ENOSYS, EHWPOISON = 14, 22, 38, 133
BROKEN_AT = 5 << 20


@pytest.mark.parametrize("error", [EINVAL, ENOSYS])
def test_an_older_kernel_reads_in_the_ordinary_way(library: Path, tmp_path: Path, error: int) -> None:
    """The ordinary way reads the pages and reports unreadable ones."""
    path = Log(tmp_path).path
    assert reading(library, path, POPULATE_FAILS_WITH=error) == "all of it"
    assert reading(library, path, POPULATE_FAILS_WITH=error, READ_FAILS_AT=BROKEN_AT) == (
        f"{BROKEN_AT} it cannot be read (Input/output error)"
    )


def test_an_unreadable_page_is_an_error_with_its_place(library: Path, tmp_path: Path) -> None:
    """The call that populates the pages reports an error without a place."""
    path = Log(tmp_path).path
    assert reading(library, path) == "all of it"
    assert reading(library, path, POPULATE_FAILS_WITH=EFAULT, READ_FAILS_AT=BROKEN_AT) == (
        f"{BROKEN_AT} it cannot be read (Input/output error)"
    )


def test_memory_that_is_broken_is_an_error_though_the_file_can_be_read(library: Path, tmp_path: Path) -> None:
    """Broken memory must not be accessed."""
    path = Log(tmp_path).path
    assert path.stat().st_size == FILE_BYTES
    assert reading(library, path, POPULATE_FAILS_WITH=EHWPOISON).startswith("0 it cannot be read (")
