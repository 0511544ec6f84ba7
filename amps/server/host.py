"""Information about the server and its host before the start: version, build date, host settings.

A host setting below its recommendation causes a warning. One is a required minimum: too few open files for the whole
system, which would stop a server in the middle of its work. The requirement can be overridden, for containers that
see only a small number there.
"""

import os
import resource
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import amps._core
from amps.version import VERSION

PRODUCT_LINE = f"amps-server {VERSION} - Copyright the amps-server authors, licensed under Apache-2.0"
FILE_MAX_OVERRIDE = "AMPS_ALLOW_SMALL_FILE_MAX"
OPEN_FILES_RECOMMENDED = 32_768
FILE_MAX_MINIMUM = 262_144

_FILE_MAX = "proc/sys/fs/file-max"
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True, slots=True)
class HostCheck:
    """The result of the host check. With errors the server must not start."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def build_date(directory: Path | None = None) -> str:
    """When the package was built, as an ISO date.

    `directory`: the directory of its extension modules. The build writes the time to a file beside them (setup.py). For
    modules built in another way, it is the time of the files, which for installed modules is that of the installation.
    """
    if directory is None:
        directory = Path(amps._core.__path__[0])
    said = _read(directory / "build_time.txt")
    if said:
        return said
    times = [path.stat().st_mtime for path in directory.rglob("*.so")] or [directory.stat().st_mtime]
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def version_lines() -> tuple[str, str]:
    """The first lines of standard output."""
    return PRODUCT_LINE, f"(Built: {build_date()})"


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        wanted = 2**20 if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_host(root: Path = Path("/")) -> HostCheck:
    """Compare the host with the requirements of a server. Settings that cannot be read are ignored."""
    errors: list[str] = []
    warnings: list[str] = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_RECOMMENDED:
        warnings.append(f"ulimit -n is set less than the recommended value of {OPEN_FILES_RECOMMENDED}")
    huge_pages = _read(root / _HUGE_PAGES)
    if huge_pages is not None and "[madvise]" not in huge_pages and "[never]" not in huge_pages:
        warnings.append(
            f"/{_HUGE_PAGES} is not set to the recommended value of [madvise] "
            "or the acceptable value of [never]"
        )
    file_max = _read(root / _FILE_MAX)
    if file_max is not None and file_max.isdigit() and int(file_max) < FILE_MAX_MINIMUM:
        text = f"/{_FILE_MAX} is set less than the minimum of {FILE_MAX_MINIMUM}"
        if os.environ.get(FILE_MAX_OVERRIDE, "0") not in ("", "0"):
            warnings.append(text)
        else:
            errors.append(
                f"{text}; raise it with sysctl fs.file-max={FILE_MAX_MINIMUM}, or set {FILE_MAX_OVERRIDE}=1 "
                "to start all the same"
            )
    return HostCheck(tuple(errors), tuple(warnings))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
